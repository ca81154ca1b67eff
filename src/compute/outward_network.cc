#include "compute/outward_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/file.h"
#include "compute/internal/namespace_calls.h"
#include "compute/sandbox.h"

namespace atelier::compute {
namespace {

constexpr const char* kPasta = "/usr/bin/pasta";
constexpr const char* kTun = "/dev/net/tun";
constexpr const char* kInterface = "eth0";  // inside
// Of the link-local block, which no router has: pasta answers for it.
constexpr std::string_view kResolver = "169.254.1.53";
constexpr std::size_t kMaxResolvConf = std::size_t{64} << 10;
// A busy host may be late; one where pasta hangs is not worth more.
constexpr int kReadyMilliseconds = 20000;

constexpr int kNullFd = 3, kErrorsFd = 4, kReportFd = 5;

// What the process in the network tells: how it went, and who it is.
struct Report {
  int cause = 0;        // errno of a call
  int pasta_exit = -1;  // as waitpid() has it
  pid_t holder = 0;
};

// Everything the children need; they make system calls only.
struct Plan {
  std::vector<char*> argv;
  char* netns = nullptr;  // the word of argv that becomes "/proc/PID/ns/net"
  std::array<char, 64> uid_map{}, gid_map{};
  uid_t uid = 0;
  gid_t gid = 0;
  bool root = false;
  bool own_tun = false;  // the host's is closed to that user
  int null_fd = -1, errors_fd = -1, report_fd = -1;
  pid_t parent = 0;
};

constexpr std::string_view kNetnsWord = "/proc/0123456789/ns/net";

// "/proc/PID/NAME" into `place`, which has room for kNetnsWord at least.
void put_path(char* place, std::string_view pid, const char* name) {
  memcpy(place, "/proc/", 6);
  memcpy(place + 6, pid.data(), pid.size());
  strcpy(place + 6 + pid.size(), name);
}

void report(const Report& words) {
  [[maybe_unused]] const ssize_t put = write(kReportFd, &words, sizeof words);
}

[[noreturn]] void fail() {
  report({errno, -1, 0});
  _exit(1);
}

[[noreturn]] void run_pasta(const Plan& plan, int go_fd) {
  char byte = 0;
  if (read(go_fd, &byte, 1) != 1 || !internal::pass_on_capabilities()) _exit(126);
  dup2(kNullFd, 0);
  dup2(kErrorsFd, 1);
  dup2(kErrorsFd, 2);
  syscall(SYS_close_range, 3U, ~0U, 0U);
  char path[] = "PATH=/usr/bin:/bin";
  char* environment[] = {path, nullptr};
  execve(kPasta, plan.argv.data(), environment);
  _exit(127);
}

// Once pasta has made its interface. With the rights that the holder of the network gives up.
[[noreturn]] void close_loopback(int go_fd) {
  char byte = 0;
  if (read(go_fd, &byte, 1) != 1) _exit(EPIPE);
  _exit(internal::keep_loopback_inside(kInterface) ? 0 : errno);
}

// The first process of a PID namespace, so that with it pasta ends. Starts pasta on the host's
// network, and is itself the one that the new network belongs to.
[[noreturn]] void hold_network(const Plan& plan, int alive_fd) {
  char pid[16];
  const ssize_t length = read(alive_fd, pid, sizeof pid);
  if (length <= 0) _exit(1);
  const std::string_view name{pid, static_cast<std::size_t>(length)};
  put_path(plan.netns, name, "/ns/net");
  // Without root groups cannot be given up, nor need to be.
  if (setresgid(plan.gid, plan.gid, plan.gid) != 0 || (plan.root && setgroups(0, nullptr) != 0) ||
      setresuid(plan.uid, plan.uid, plan.uid) != 0) {
    fail();
  }
  // After the change of user, which forgets it. Who started us may have died before.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pollfd alive{alive_fd, POLLIN, 0};
  if (poll(&alive, 1, 0) != 0) _exit(1);
  int go[2];
  if (pipe2(go, O_CLOEXEC) != 0) fail();
  const pid_t pasta = fork();
  if (pasta < 0) fail();
  if (pasta == 0) {
    close(go[1]);
    run_pasta(plan, go[0]);
  }
  if (unshare(CLONE_NEWNET) != 0 || !internal::raise_loopback()) fail();
  int then[2];
  if (pipe2(then, O_CLOEXEC) != 0) fail();
  const pid_t closer = fork();
  if (closer < 0) fail();
  if (closer == 0) {
    close(then[1]);
    close_loopback(then[0]);
  }
  // pasta opens our network by /proc: that takes no more rights here than it has itself.
  if (!internal::drop_capabilities() || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) fail();
  if (write(go[1], "1", 1) != 1) fail();
  int status = 0;
  while (waitpid(pasta, &status, 0) < 0 && errno == EINTR) {
  }
  int closed = 0;
  if (write(then[1], "1", 1) != 1) fail();
  while (waitpid(closer, &closed, 0) < 0 && errno == EINTR) {
  }
  Report words;
  words.pasta_exit = status;
  if (status == 0) words.cause = WIFEXITED(closed) ? WEXITSTATUS(closed) : ECHILD;
  std::from_chars(name.data(), name.data() + name.size(), words.holder);
  report(words);
  close(kReportFd);
  if (status != 0 || closed != 0) _exit(1);
  // pasta went to the background, and is our child now.
  while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
  _exit(0);
}

// Without changing the host: in a mount namespace of this process.
bool make_tun() {
  return unshare(CLONE_NEWNS) == 0 &&
         mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/dev/net", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=4k,mode=0755") == 0 &&
         mknod(kTun, S_IFCHR | 0666, makedev(10, 200)) == 0 && chmod(kTun, 0666) == 0;
}

// Only these stay open, at numbers that everyone here knows: a lock of the agent's must not
// outlive it.
bool keep_descriptors(const Plan& plan) {
  const int null = fcntl(plan.null_fd, F_DUPFD, 64), errors = fcntl(plan.errors_fd, F_DUPFD, 64),
            report = fcntl(plan.report_fd, F_DUPFD, 64);
  if (null < 0 || errors < 0 || report < 0 || dup2(null, 0) < 0 || dup2(null, kNullFd) < 0 ||
      dup2(errors, kErrorsFd) < 0 || dup2(report, kReportFd) < 0) {
    return false;
  }
  return syscall(SYS_close_range, static_cast<unsigned>(kReportFd + 1), ~0U, 0U) == 0;
}

// Makes the namespaces that the others live in, and lives as long as they do.
[[noreturn]] void make_network(const Plan& plan) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != plan.parent) _exit(1);
  sigset_t nothing;
  sigemptyset(&nothing);
  sigprocmask(SIG_SETMASK, &nothing, nullptr);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  if (!keep_descriptors(plan)) _exit(1);
  if (plan.own_tun && !make_tun()) fail();
  int alive[2];
  if (pipe2(alive, O_CLOEXEC) != 0) fail();
  const auto holder = static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD,
                                                 nullptr, nullptr, nullptr, nullptr));
  if (holder < 0) fail();
  if (holder == 0) {
    close(alive[1]);
    hold_network(plan, alive[0]);
  }
  close(alive[0]);
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, holder).ptr;
  const std::string_view pid{digits, static_cast<std::size_t>(end - digits)};
  char path[64];
  put_path(path, pid, "/setgroups");
  if (!plan.root && !internal::write_text(path, "deny")) fail();
  put_path(path, pid, "/uid_map");
  if (!internal::write_text(path, plan.uid_map.data())) fail();
  put_path(path, pid, "/gid_map");
  if (!internal::write_text(path, plan.gid_map.data())) fail();
  if (write(alive[1], pid.data(), pid.size()) != static_cast<ssize_t>(pid.size())) fail();
  close(kReportFd);
  while (waitpid(holder, nullptr, 0) < 0 && errno == EINTR) {
  }
  _exit(0);
}

std::vector<std::string> pasta_words(const OutwardSpec& spec, bool forward_dns) {
  std::vector<std::string> words{
      "pasta", "--quiet", "--config-net",
      // Neither the gateway's address nor any port is a way to the
      // host's loopback, but those named; and none leads inside.
      "--no-map-gw", "--ns-ifname", kInterface, "-t", "none", "-u", "none", "-U", "none", "-T",
      spec.host_ports.empty() ? std::string{"none"}
                              : fmt::format("{}", fmt::join(spec.host_ports, ",")),
      // Addresses are set by --config-net; nobody has to ask.
      "--no-dhcp", "--no-dhcpv6", "--no-ra"};
  if (forward_dns) words.insert(words.end(), {"--dns-forward", std::string{kResolver}});
  words.insert(words.end(), {"--netns-only", "--netns", std::string{kNetnsWord}});
  return words;
}

bool is_closed_to_others(const char* path) {
  struct stat info {};
  return stat(path, &info) == 0 && (info.st_mode & 0006) != 0006;
}

void put_map(std::array<char, 64>& map, unsigned id) {
  *fmt::format_to_n(map.data(), map.size() - 1, "{} {} 1", id, id).out = '\0';
}

// Its last line that says something.
std::string pasta_error(int errors_fd) {
  std::string text(4096, '\0');
  const ssize_t got = pread(errors_fd, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  std::string last = "it said nothing";
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (!line.empty() && !line.starts_with("Failed to send")) last = line.substr(0, 300);
  }
  return last;
}

struct Address {
  std::string_view host;
  std::string_view port;
};
// Of "[USER[:PASSWORD]@]HOST[:PORT][/...]".
Address parse_address(std::string_view rest) {
  rest = rest.substr(0, rest.find_first_of("/ \t\r\n\"'?#,"));
  const std::size_t at = rest.rfind('@');
  if (at != std::string_view::npos) rest.remove_prefix(at + 1);
  const std::size_t host_end = rest.starts_with('[') ? rest.find(']') : std::string_view::npos;
  const std::size_t colon = rest.find(':', host_end == std::string_view::npos ? 0 : host_end);
  if (colon == std::string_view::npos) return {rest, {}};
  return {rest.substr(0, colon), rest.substr(colon + 1)};
}

bool is_loopback_name(std::string_view host) {
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

}  // namespace

struct OutwardNetwork::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (pid < 0) return;
    kill(pid, SIGKILL);
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pid_t pid = -1;
  UniqueFd pidfd, report, errors;
};

OutwardNetwork::OutwardNetwork(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutwardNetwork::OutwardNetwork(OutwardNetwork&&) noexcept = default;
OutwardNetwork& OutwardNetwork::operator=(OutwardNetwork&&) noexcept = default;
OutwardNetwork::~OutwardNetwork() = default;

int OutwardNetwork::end_fd() const { return state_->pidfd.get(); }

Result<OutwardNetwork> OutwardNetwork::begin(const OutwardSpec& spec) {
  if (::access(kPasta, X_OK) != 0) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("{} is not there: install the package passt", kPasta)};
  }
  auto state = std::make_unique<State>();
  const std::string resolver = read_file("/etc/resolv.conf", kMaxResolvConf).value_or("");
  std::vector<std::string> words = pasta_words(spec, outward_resolv_conf(resolver) != resolver);
  Plan plan;
  for (std::string& word : words) plan.argv.push_back(word.data());
  plan.netns = plan.argv.back();
  plan.argv.push_back(nullptr);
  plan.root = geteuid() == 0;
  const Identity identity = program_identity(spec.identity);
  plan.uid = identity.uid;
  plan.gid = identity.gid;
  put_map(plan.uid_map, identity.uid);
  put_map(plan.gid_map, identity.gid);
  plan.own_tun = plan.root && is_closed_to_others(kTun);
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return error_from_errno("pipe2", errno);
  state->report = UniqueFd{fds[0]};
  const UniqueFd report_write{fds[1]};
  const UniqueFd null = TRY(open_file("/dev/null", O_RDWR));
  state->errors = UniqueFd{memfd_create("pasta", MFD_CLOEXEC)};
  if (!state->errors) return error_from_errno("memfd_create", errno);
  plan.null_fd = null.get();
  plan.errors_fd = state->errors.get();
  plan.report_fd = report_write.get();
  plan.parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return error_from_errno("fork", errno);
  if (pid == 0) make_network(plan);
  state->pid = pid;
  state->pidfd = UniqueFd{static_cast<int>(syscall(SYS_pidfd_open, pid, 0))};
  if (!state->pidfd) return error_from_errno("pidfd_open", errno);
  return OutwardNetwork{std::move(state)};
}

Result<SharedNetwork> OutwardNetwork::ready() {
  pollfd waiting{state_->report.get(), POLLIN, 0};
  Report words;
  int polled = 0;
  while ((polled = poll(&waiting, 1, kReadyMilliseconds)) < 0 && errno == EINTR) {
  }
  if (polled == 0) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("pasta was not ready within {} s", kReadyMilliseconds / 1000)};
  }
  if (read(state_->report.get(), &words, sizeof words) != sizeof words) {
    return Error{Code::kFailedPrecondition, "the process that holds the network has ended"};
  }
  if (words.cause != 0) {
    return Error{Code::kFailedPrecondition,
                 error_from_errno("a network namespace", words.cause).message};
  }
  if (words.pasta_exit != 0) {
    return Error{Code::kFailedPrecondition, "pasta: " + pasta_error(state_->errors.get())};
  }
  return SharedNetwork::of(words.holder);
}

std::set<std::uint16_t> loopback_ports(std::string_view text) {
  std::set<std::uint16_t> ports;
  constexpr std::string_view kMark = "://";
  for (std::size_t at = text.find(kMark); at != std::string_view::npos;
       at = text.find(kMark, at + 1)) {
    const Address address = parse_address(text.substr(at + kMark.size()));
    if (!is_loopback_name(address.host)) continue;
    std::uint16_t port = text.substr(0, at).ends_with("https") ? 443 : 80;
    if (!address.port.empty()) {
      const char* end = address.port.data() + address.port.size();
      const auto parsed = std::from_chars(address.port.data(), end, port);
      if (parsed.ec != std::errc{} || parsed.ptr != end || port == 0) continue;
    }
    ports.insert(port);
  }
  return ports;
}

bool is_forwarded_loopback(std::string_view url) {
  const std::size_t at = url.find("://");
  return at != std::string_view::npos && is_loopback_name(parse_address(url.substr(at + 3)).host);
}

std::string outward_resolv_conf(std::string_view text) {
  std::string result;
  bool forwarded = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    text.remove_prefix(line.size());
    constexpr std::string_view kWord = "nameserver";
    std::string_view address = line.starts_with(kWord) ? line.substr(kWord.size()) : "";
    address.remove_prefix(std::min(address.find_first_not_of(" \t"), address.size()));
    if (!address.starts_with("127.") && !address.starts_with("::1")) {
      result += line;
    } else if (!forwarded) {
      result += fmt::format("nameserver {}\n", kResolver);
      forwarded = true;
    }
  }
  return result;
}

}  // namespace atelier::compute
