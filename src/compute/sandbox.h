// Runs one program in a sandbox by bubblewrap: a private /opt/ml, own process, IPC and mount
// namespaces, no network when asked, an unprivileged uid, limits by cgroup v2, else v1, else
// rlimits.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "compute/network.h"

namespace atelier::compute {

struct BindMount {
  std::filesystem::path host;
  std::filesystem::path inside;
  bool writable = false;
};

struct SandboxSpec {
  std::string name;                                // of the job instance, for cgroup and messages
  std::string identity;                            // whose user it is; empty: the name's
  std::vector<std::string> argv;                   // argv[0] is a path inside
  std::map<std::string, std::string> environment;  // nothing is inherited
  std::filesystem::path ml_folder;                 // becomes /opt/ml, writable
  std::vector<BindMount> mounts;   // besides the system folders, read-only by default
  std::vector<BindMount> devices;  // files of /dev that the program may use, besides the usual ones
  // Small read-only files by their path inside, besides those of /etc that every program gets.
  std::map<std::string, std::string> files;
  std::filesystem::path working_folder = "/opt/ml";
  std::string host_name = "algo-1";
  // Names that resolve inside, with their addresses.
  std::map<std::string, std::string> hosts = {{"algo-1", "127.0.0.1"}};
  bool network_isolation = false;
  // A network to join instead of the host's, or of none; not owned. Without isolation it is an
  // OutwardNetwork's.
  const SharedNetwork* network = nullptr;
  double vcpus = 0;  // 0: no limit
  double memory_gib = 0;
  int output_fd = -1;  // stdout and stderr of the program
  // Called with the limits in words once they are known, before anything runs; its error ends it.
  std::function<Result<void>(const std::string& limits)> before_start;
};

struct SandboxExit {
  int code = 0;  // of exit(), when signal is 0
  int signal = 0;
  bool out_of_memory = false;  // the memory limit killed a process of it
};

// Who a sandboxed program of that name is on the host. As root that is a user id without a name or
// a right, its own for each name; without root it is the caller, and only namespaces confine it.
// The caller gives the ml folder to it before start().
struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
};
Identity program_identity(std::string_view name);

// Removes what an earlier sandbox of that name has left on the host when its starter was killed:
// its control groups, for its processes and mounts have died with it, but for a bubblewrap that
// was killed while it started, which is known by the folder that it was to bind as /opt/ml.
void remove_leavings(std::string_view name, const std::filesystem::path& ml_folder = {});
// The names whose sandboxes have left control groups for at least a minute: empty ones, for a group
// with processes is a sandbox that runs.
std::vector<std::string> names_with_leavings();

// A running program. It dies with the thread that started it. Destroying it kills what still runs.
class Sandbox {
 public:
  // Returns once bubblewrap runs. That it could not set the sandbox up shows in wait().
  static Result<Sandbox> start(const SandboxSpec& spec);
  Sandbox(Sandbox&&) noexcept;
  Sandbox& operator=(Sandbox&&) noexcept;
  ~Sandbox();
  [[nodiscard]] int exit_fd() const;                // a pidfd: readable once the program has ended
  [[nodiscard]] const std::string& limits() const;  // in words: "cgroup v2: 4 CPUs, 16 GiB"
  Result<void> signal(int number);                  // to every process inside
  // Lists the processes of the program, from any thread and also after the end.
  [[nodiscard]] std::function<std::vector<pid_t>()> lister() const;
  // Whether a process inside has a handler of its own for the signal.
  [[nodiscard]] bool handles(int number) const;
  // After the end: reaps, and removes the cgroup. A status above 128 is read as every shell means
  // it: 128 and the signal. kFailedPrecondition when bubblewrap could not set the sandbox up.
  Result<SandboxExit> wait();

 private:
  struct State;
  explicit Sandbox(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atelier::compute
