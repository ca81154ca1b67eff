#include "compute/network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "compute/internal/namespace_calls.h"

namespace atelier::compute {
namespace {

using internal::raise_loopback;
using internal::write_text;

constexpr std::size_t kMaxStat = 4096;

struct Maps {
  bool own_user = false;  // a user namespace first: the caller is not root
  char uid[64], gid[64];
};

// The child that makes the namespaces, tells `ready_fd` its errno (0: done), and waits to be
// killed.
[[noreturn]] void make_namespaces(const Maps& maps, int ready_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int cause = 0;
  const int flags = CLONE_NEWNET | (maps.own_user ? CLONE_NEWUSER : 0);
  if (unshare(flags) != 0) {
    cause = errno;
  } else if (maps.own_user && (!write_text("/proc/self/setgroups", "deny") ||
                               !write_text("/proc/self/uid_map", maps.uid) ||
                               !write_text("/proc/self/gid_map", maps.gid))) {
    cause = errno == 0 ? EPERM : errno;
  } else if (!raise_loopback()) {
    cause = errno;
  }
  if (write(ready_fd, &cause, sizeof cause) != sizeof cause) _exit(1);
  while (true) pause();
}

// When the process began, which with its id names it for good; empty when it is not there.
std::string start_time(const std::string& pid) {
  const Result<std::string> stat = read_file("/proc/" + pid + "/stat", kMaxStat);
  if (!stat) return {};
  // "pid (any name) state ppid ...": field 22, counted from the last ')'.
  std::size_t at = stat->rfind(')');
  for (int field = 3; at != std::string::npos && field <= 22; ++field) at = stat->find(' ', at + 1);
  if (at == std::string::npos) return {};
  return stat->substr(at + 1, stat->find(' ', at + 1) - at - 1);
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 20 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

Result<SharedNetwork> SharedNetwork::create() {
  Maps maps;
  maps.own_user = geteuid() != 0;
  *fmt::format_to_n(maps.uid, sizeof maps.uid - 1, "{} {} 1", geteuid(), geteuid()).out = '\0';
  *fmt::format_to_n(maps.gid, sizeof maps.gid - 1, "{} {} 1", getegid(), getegid()).out = '\0';
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return error_from_errno("pipe2", errno);
  const UniqueFd ready{fds[0]};
  UniqueFd ready_write{fds[1]};
  const pid_t pid = fork();
  if (pid < 0) return error_from_errno("fork", errno);
  if (pid == 0) make_namespaces(maps, ready_write.get());
  ready_write.reset();
  int cause = ECHILD;
  const bool told = read(ready.get(), &cause, sizeof cause) == sizeof cause;
  SharedNetwork network;
  Result<void> outcome;
  if (!told || cause != 0) {
    outcome = error_from_errno("make a network for the instances of the job", cause);
  } else {
    Result<SharedNetwork> made = of(pid);
    if (made) {
      network = *std::move(made);
    } else {
      outcome = made.error();
    }
  }
  kill(pid, SIGKILL);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!outcome) return outcome.error();
  return network;
}

Result<SharedNetwork> SharedNetwork::of(pid_t process) {
  const std::string folder = fmt::format("/proc/{}/ns/", process);
  SharedNetwork network;
  network.network_ = TRY(open_file(folder + "net", O_RDONLY));
  if (geteuid() != 0) network.user_ = TRY(open_file(folder + "user", O_RDONLY));
  return network;
}

std::string SharedNetwork::name() const {
  const std::string pid = std::to_string(getpid());
  return fmt::format("{} {} {} {}", pid, start_time(pid), network_.get(), user_.get());
}

Result<SharedNetwork> SharedNetwork::join(const std::string& name) {
  std::string words[4];
  std::size_t at = 0;
  for (std::string& word : words) {
    const std::size_t end = std::min(name.find(' ', at), name.size());
    word = name.substr(std::min(at, name.size()), end - std::min(at, name.size()));
    at = end + 1;
  }
  const auto& [pid, began, net, user] = words;
  if (!is_number(pid) || !is_number(began) || !is_number(net) ||
      (user != "-1" && !is_number(user))) {
    return Error{Code::kInvalidArgument, fmt::format("'{}' is no name of a network", name)};
  }
  SharedNetwork network;
  const std::string folder = "/proc/" + pid + "/fd/";
  network.network_ = TRY(open_file(folder + net, O_RDONLY));
  if (user != "-1") network.user_ = TRY(open_file(folder + user, O_RDONLY));
  // After the descriptors: another process may have got the id meanwhile.
  if (start_time(pid) != began) {
    return Error{Code::kNotFound, "the agent that made the network of the job has ended"};
  }
  return network;
}

}  // namespace atelier::compute
