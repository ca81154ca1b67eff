#include "compute/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "base/json.h"
#include "compute/internal/bwrap_arguments.h"
#include "compute/internal/cgroup.h"
#include "compute/internal/entry_program.h"
#include "compute/internal/landlock.h"
#include "compute/internal/mount_points.h"
#include "compute/internal/seccomp.h"
#include "compute/outward_network.h"

namespace atelier::compute {
namespace fs = std::filesystem;
namespace {

// User ids of programs: below 2^31, where every tool still copes, and above the ranges that
// systemd, container engines and directory services hand out.
constexpr uid_t kFirstUid = 2'000'000'000;
constexpr std::uint64_t kUids = 100'000'000;

// Files of /etc that programs read and that are the same for everyone. Not: accounts, keys, and
// whatever else an administrator keeps there. They are copied: a mount costs far more.
constexpr const char* kEtcFiles[] = {
    "/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/host.conf",       "/etc/gai.conf",
    "/etc/services",    "/etc/protocols",     "/etc/localtime",       "/etc/timezone",
    "/etc/mime.types",  "/etc/os-release",    "/etc/ssl/openssl.cnf", "/etc/debian_version"};

constexpr const char* kBwrap = "/usr/bin/bwrap";

// Known to the host's own users and to no job: who could compute user ids could give a job a name
// whose user is that of somebody else's job (a hundred million are tried in seconds). Hosts without
// one, containers mostly, have only the length of the search.
const std::string& host_secret() {
  static const std::string secret = read_file("/etc/machine-id", 4096).value_or("");
  return secret;
}

uid_t user_of(std::string_view name) {
  const std::string mac = hmac_sha256("atelier-users" + host_secret(), name);
  std::uint64_t number = 0;
  std::memcpy(&number, mac.data(), sizeof number);
  return kFirstUid + static_cast<uid_t>(number % kUids);
}

// A file in memory that bubblewrap reads from its start.
Result<UniqueFd> memory_file(std::string_view bytes) {
  UniqueFd fd{memfd_create("atelier", MFD_CLOEXEC)};
  if (!fd) return error_from_errno("memfd_create", errno);
  TRY(write_all(fd.get(), bytes));
  if (lseek(fd.get(), 0, SEEK_SET) != 0) return error_from_errno("lseek", errno);
  return fd;
}

struct Pipe {
  UniqueFd read, write;
};
Result<Pipe> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return error_from_errno("pipe2", errno);
  return Pipe{UniqueFd{fds[0]}, UniqueFd{fds[1]}};
}

std::string hosts_file(const SandboxSpec& spec) {
  std::string text = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n";
  for (const auto& [name, address] : spec.hosts) text += fmt::format("{} {}\n", address, name);
  return text;
}

std::string passwd_file(const Identity& identity) {
  return fmt::format(
      "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
      "atelier:x:{}:{}:atelier job:/tmp:/bin/bash\n"
      "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
      identity.uid, identity.gid);
}

std::string group_file(const Identity& identity) {
  return fmt::format("root:x:0:\natelier:x:{}:\nnogroup:x:65534:\n", identity.gid);
}

std::map<std::string, std::string> small_files(const SandboxSpec& spec, const Identity& identity) {
  std::map<std::string, std::string> files{{"/etc/passwd", passwd_file(identity)},
                                           {"/etc/group", group_file(identity)},
                                           {"/etc/hosts", hosts_file(spec)}};
  const auto copy = [&](const char* path) {
    Result<std::string> text = read_file(path, std::size_t{4} << 20);
    if (text) files.emplace(path, *std::move(text));
  };
  for (const char* path : kEtcFiles) copy(path);
  if (!spec.network_isolation) copy("/etc/resolv.conf");
  const auto resolver = files.find("/etc/resolv.conf");
  if (resolver != files.end() && spec.network != nullptr) {
    resolver->second = outward_resolv_conf(resolver->second);
  }
  for (const auto& [path, text] : spec.files) files.insert_or_assign(path, text);
  return files;
}

// As sandbox_entry reads them. In a file, because a command line is open to everyone on the host.
std::string variables(const SandboxSpec& spec) {
  std::string text;
  for (const auto& [name, value] : spec.environment)
    text.append(name).append(1, '=').append(value).append(1, '\0');
  return text;
}

std::uint64_t physical_memory() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// A null-terminated array of C strings over `words`, which it must not outlive.
std::vector<char*> c_strings(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

// Everything that the child needs, made before the fork: after it only system calls are safe.
struct Launch {
  std::vector<char*> argv;
  std::vector<int> keep_fds, join_fds;
  int output_fd = -1, null_fd = -1, failure_fd = -1, scope_fd = -1;
  int network_fd = -1, user_fd = -1;  // namespaces to enter
  internal::Limits limits;            // of each process
  cpu_set_t cpus{};
  bool set_cpus = false;
  pid_t parent = 0;
};

void limit_process(const Launch& launch) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  if (launch.limits.memory_bytes > 0) {
    // Private writable memory; the address space as such is no measure (torch maps far more).
    const rlimit memory{launch.limits.memory_bytes, launch.limits.memory_bytes};
    setrlimit(RLIMIT_DATA, &memory);
  }
  if (launch.set_cpus) sched_setaffinity(0, sizeof launch.cpus, &launch.cpus);
}

[[noreturn]] void run_child(const Launch& launch) {
  const auto fail = [&] {
    const int cause = errno;
    [[maybe_unused]] const ssize_t put = write(launch.failure_fd, &cause, sizeof cause);
    _exit(127);
  };
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launch.parent) fail();
  sigset_t nothing;
  sigemptyset(&nothing);
  sigprocmask(SIG_SETMASK, &nothing, nullptr);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  for (const int fd : launch.join_fds) {
    if (write(fd, "0", 1) != 1) fail();
  }
  if (launch.user_fd >= 0 && setns(launch.user_fd, CLONE_NEWUSER) != 0) fail();
  if (launch.network_fd >= 0 && setns(launch.network_fd, CLONE_NEWNET) != 0) fail();
  limit_process(launch);
  if (launch.scope_fd >= 0 && !internal::enter_scope(launch.scope_fd)) fail();
  if (dup2(launch.null_fd, 0) < 0 || dup2(launch.output_fd, 1) < 0 ||
      dup2(launch.output_fd, 2) < 0) {
    fail();
  }
  syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  for (const int fd : launch.keep_fds) fcntl(fd, F_SETFD, 0);
  char* const no_variables[] = {nullptr};  // those of the job are not for bubblewrap
  execve(launch.argv[0], launch.argv.data(), no_variables);
  fail();
  _exit(127);
}

// A fork whose child begins in the control group of version 2 (moving it afterwards would wait for
// an RCU grace period). `inside` is false where the kernel or the host does not allow that.
pid_t fork_into(int cgroup_fd, bool& inside) {
  clone_args arguments{};
  arguments.flags = CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = static_cast<std::uint64_t>(cgroup_fd);
  if (cgroup_fd >= 0) {
    inside = true;
    const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof arguments));
    if (pid >= 0) return pid;
  }
  inside = false;
  return fork();
}

void plan_affinity(Launch& launch) {
  cpu_set_t allowed;
  if (launch.limits.cpus <= 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  auto wanted = static_cast<int>(std::ceil(launch.limits.cpus));
  CPU_ZERO(&launch.cpus);
  for (int cpu = 0; cpu < CPU_SETSIZE && wanted > 0; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    CPU_SET(cpu, &launch.cpus);
    --wanted;
  }
  launch.set_cpus = true;
}

// Parents of all processes of the host, by one pass over /proc.
std::vector<std::pair<pid_t, pid_t>> process_parents() {
  std::vector<std::pair<pid_t, pid_t>> parents;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const Result<std::string> stat = read_file(entry.path() / "stat", 4096);
    if (!stat) continue;
    // "pid (any name) S ppid ...": the name may hold anything, so count from its last ')'.
    const std::size_t end = stat->rfind(')');
    if (end == std::string::npos || end + 4 > stat->size()) continue;
    parents.emplace_back(std::atoi(name.c_str()), std::atoi(stat->c_str() + end + 4));
  }
  return parents;
}

// The processes of the program: all descendants of bubblewrap but its own two, the one outside and
// the first one inside.
struct Inside {
  std::vector<pid_t> init, program;
};
Inside processes_inside(pid_t bwrap) {
  const auto parents = process_parents();
  const auto children = [&](const std::vector<pid_t>& of) {
    std::vector<pid_t> found;
    for (const auto& [pid, parent] : parents) {
      if (std::find(of.begin(), of.end(), parent) != of.end()) found.push_back(pid);
    }
    return found;
  };
  Inside inside;
  inside.init = children({bwrap});
  for (std::vector<pid_t> level = children(inside.init); !level.empty(); level = children(level)) {
    inside.program.insert(inside.program.end(), level.begin(), level.end());
  }
  return inside;
}

const char* network_words(const SandboxSpec& spec) {
  if (spec.network == nullptr) {
    return spec.network_isolation ? "; no network" : "; the host's network";
  }
  return spec.network_isolation ? "; a network of the job's instances alone"
                                : "; a network of the job's own, outwards by pasta";
}

Result<void> check(const SandboxSpec& spec) {
  if (spec.argv.empty()) return Error{Code::kInvalidArgument, "a sandbox needs a program to run"};
  if (::access(kBwrap, X_OK) != 0) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("{} is not there: install the package bubblewrap", kBwrap)};
  }
  struct stat info {};
  if (stat(spec.ml_folder.c_str(), &info) != 0) {
    return error_from_errno("stat '" + spec.ml_folder.string() + "'", errno);
  }
  for (const BindMount& mount : spec.mounts) {
    if (stat(mount.host.c_str(), &info) != 0) {
      return error_from_errno("mount '" + mount.host.string() + "' into the sandbox", errno);
    }
  }
  return {};
}

}  // namespace

struct Sandbox::State {
  explicit State(internal::Cgroup group) : cgroup(std::move(group)) {}
  ~State();

  internal::Cgroup cgroup;
  pid_t pid = -1;
  UniqueFd pidfd;
  UniqueFd status;  // bubblewrap's own report, as JSON documents
  std::string limits;
};

Sandbox::State::~State() {
  if (pid < 0) return;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

Identity program_identity(std::string_view name) {
  if (geteuid() != 0) return {geteuid(), getegid()};
  const uid_t uid = user_of(name);
  return {uid, uid};
}

void remove_leavings(std::string_view name, const std::filesystem::path& ml_folder) {
  internal::remove_left_cgroups(name, ml_folder);
}

std::vector<std::string> names_with_leavings() { return internal::names_of_left_cgroups(); }

Sandbox::Sandbox(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sandbox::Sandbox(Sandbox&&) noexcept = default;
Sandbox& Sandbox::operator=(Sandbox&&) noexcept = default;
Sandbox::~Sandbox() = default;

int Sandbox::exit_fd() const { return state_->pidfd.get(); }
const std::string& Sandbox::limits() const { return state_->limits; }

Result<Sandbox> Sandbox::start(const SandboxSpec& spec) {
  TRY(check(spec));
  const internal::Limits limits{
      spec.vcpus, static_cast<std::uint64_t>(spec.memory_gib * static_cast<double>(1 << 30))};
  auto state = std::make_unique<State>(internal::Cgroup::create(spec.name, limits));

  internal::BwrapPlan plan;
  plan.bwrap = kBwrap;
  plan.root = geteuid() == 0;
  plan.identity = program_identity(spec.identity.empty() ? spec.name : spec.identity);
  TRY(internal::make_mount_points(spec, plan.identity));
  plan.shm_bytes = (limits.memory_bytes > 0 ? limits.memory_bytes : physical_memory()) / 2;
  Launch launch;
  std::vector<UniqueFd> files;
  for (const auto& [path, text] : small_files(spec, plan.identity)) {
    files.push_back(TRY(memory_file(text)));
    plan.files.push_back({files.back().get(), path});
  }
  files.push_back(TRY(memory_file(internal::seccomp_filter())));
  plan.seccomp_fd = files.back().get();
  files.push_back(TRY(memory_file(internal::entry_program())));
  plan.entry_fd = files.back().get();
  files.push_back(TRY(memory_file(variables(spec))));
  plan.variables_fd = files.back().get();
  Pipe status = TRY(make_pipe());
  plan.status_fd = status.write.get();
  for (const UniqueFd& file : files) launch.keep_fds.push_back(file.get());
  launch.keep_fds.push_back(status.write.get());

  std::vector<std::string> words = internal::bwrap_arguments(spec, plan);
  launch.argv = c_strings(words);
  launch.join_fds = state->cgroup.join_fds();
  launch.limits = state->cgroup.per_process();
  launch.parent = getpid();
  plan_affinity(launch);
  const UniqueFd null = TRY(open_file("/dev/null", O_RDWR));
  launch.null_fd = null.get();
  launch.output_fd = spec.output_fd >= 0 ? spec.output_fd : null.get();
  if (spec.network != nullptr) {
    launch.network_fd = spec.network->network_fd();
    launch.user_fd = spec.network->user_fd();
  }
  const UniqueFd scope = internal::make_scope();
  launch.scope_fd = scope.get();
  Pipe failure = TRY(make_pipe());
  launch.failure_fd = failure.write.get();

  state->limits = state->cgroup.words() +
                  (plan.root ? fmt::format("; unprivileged user {} of the host", plan.identity.uid)
                             : std::string{"; your own user, confined by namespaces only"}) +
                  network_words(spec);
  if (spec.before_start) TRY(spec.before_start(state->limits));

  bool inside = false;
  state->pid = fork_into(state->cgroup.clone_fd(), inside);
  if (state->pid < 0) return error_from_errno("fork", errno);
  if (inside) launch.join_fds.clear();
  if (state->pid == 0) run_child(launch);
  failure.write.reset();
  int cause = 0;
  if (read(failure.read.get(), &cause, sizeof cause) == sizeof cause) {
    return error_from_errno(fmt::format("start the sandbox of '{}'", spec.name), cause);
  }
  state->pidfd = UniqueFd{static_cast<int>(syscall(SYS_pidfd_open, state->pid, 0))};
  if (!state->pidfd) return error_from_errno("pidfd_open", errno);
  state->status = std::move(status.read);
  return Sandbox{std::move(state)};
}

Result<void> Sandbox::signal(int number) {
  const Inside inside = processes_inside(state_->pid);
  if (number == SIGKILL || inside.program.empty()) {
    // Without its first process the kernel kills all the others of a PID namespace. Before the
    // program has begun there is nobody to ask for an end.
    for (const pid_t pid : inside.init) kill(pid, SIGKILL);
    if (inside.init.empty()) kill(state_->pid, SIGKILL);
    return {};
  }
  for (const pid_t pid : inside.program) kill(pid, number);
  return {};
}

std::function<std::vector<pid_t>()> Sandbox::lister() const {
  return [pid = state_->pid] { return processes_inside(pid).program; };
}

bool Sandbox::handles(int number) const {
  const std::vector<pid_t> program = processes_inside(state_->pid).program;
  return std::any_of(program.begin(), program.end(), [&](pid_t pid) {
    const std::string status = read_file(fmt::format("/proc/{}/status", pid)).value_or("");
    constexpr std::string_view kCaught = "\nSigCgt:\t";
    const std::size_t at = status.find(kCaught);
    if (at == std::string::npos) return false;
    const std::uint64_t mask = std::strtoull(status.c_str() + at + kCaught.size(), nullptr, 16);
    return (mask >> (number - 1) & 1) != 0;
  });
}

Result<SandboxExit> Sandbox::wait() {
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(state_->pid), &info, WEXITED) != 0) {
    if (errno != EINTR) return error_from_errno("wait for the sandbox", errno);
  }
  state_->pid = -1;
  SandboxExit exit;
  exit.out_of_memory = state_->cgroup.out_of_memory_kills() > 0;
  if (info.si_code != CLD_EXITED) {
    exit.signal = info.si_status;
    return exit;
  }
  std::string report(4096, '\0');
  const ssize_t got = read(state_->status.get(), report.data(), report.size());
  report.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  // bubblewrap reports an exit status only of a program that it got to run.
  if (report.find("\"exit-code\"") == std::string::npos && info.si_status == 1) {
    return Error{Code::kFailedPrecondition,
                 "bubblewrap could not set the sandbox up; its reason is in the last lines of the "
                 "log (docs/decisions/sandbox.md has the usual ones)"};
  }
  exit.code = info.si_status;
  if (exit.code > 128 && exit.code <= 128 + SIGRTMAX) {
    exit.signal = exit.code - 128;
    exit.code = 0;
  }
  return exit;
}

}  // namespace atelier::compute
