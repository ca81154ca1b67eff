#include "compute/internal/bwrap_arguments.h"

#include <algorithm>
#include <filesystem>
#include <set>

namespace atelier::compute::internal {
namespace fs = std::filesystem;
namespace {

// Folders of /etc that programs read and that are the same for everyone.
constexpr const char* kEtcFolders[] = {"/etc/ssl/certs", "/etc/alternatives", "/etc/fonts",
                                       "/etc/pki/tls/certs"};

constexpr const char* kEntry = "/run/atelier/sandbox_entry";

class Arguments {
 public:
  template <typename... Words>
  void add(Words&&... words) {
    (list_.emplace_back(std::forward<Words>(words)), ...);
  }
  // bubblewrap makes missing parents of a mount point for root alone; these are for everyone.
  void add_parents(const fs::path& inside) {
    fs::path folder = "/";
    for (const fs::path& part : inside.parent_path().relative_path()) {
      folder /= part;
      if (made_.insert(folder).second) add("--dir", folder.string());
    }
  }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
  std::set<fs::path> made_{"/usr", "/proc", "/dev", "/tmp"};
};

void add_namespaces(Arguments& arguments, const SandboxSpec& spec, const BwrapPlan& plan) {
  arguments.add(plan.bwrap, "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc",
                "--unshare-uts", "--unshare-cgroup-try", "--hostname", spec.host_name);
  if (spec.network_isolation && spec.network == nullptr) arguments.add("--unshare-net");
  if (plan.root) {
    // What sandbox_entry needs to become the program's user; it gives them up with the rest.
    arguments.add("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID",
                  "--cap-add", "CAP_SETPCAP");
  } else {
    arguments.add("--unshare-user", "--uid", std::to_string(plan.identity.uid), "--gid",
                  std::to_string(plan.identity.gid));
  }
  arguments.add("--seccomp", std::to_string(plan.seccomp_fd));
  arguments.add("--json-status-fd", std::to_string(plan.status_fd));
}

void add_system(Arguments& arguments, const SandboxSpec& spec, const BwrapPlan& plan) {
  arguments.add("--ro-bind", "/usr", "/usr");
  for (const char* folder : {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}) {
    std::error_code failure;
    if (fs::is_symlink(folder, failure)) {
      arguments.add("--symlink", fs::read_symlink(folder, failure).string(), folder);
    } else if (fs::is_directory(folder, failure)) {
      arguments.add("--ro-bind", folder, folder);
    }
  }
  for (const char* path : kEtcFolders) {
    std::error_code failure;
    if (!fs::exists(path, failure)) continue;
    arguments.add_parents(path);
    arguments.add("--ro-bind", path, path);
  }
  for (const DataFile& file : plan.files) {
    arguments.add_parents(file.path);
    arguments.add("--perms", "0444", "--file", std::to_string(file.fd), file.path);
  }
  arguments.add_parents(kEntry);
  arguments.add("--perms", "0555", "--file", std::to_string(plan.entry_fd), kEntry);
  arguments.add("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size",
                std::to_string(plan.shm_bytes), "--tmpfs", "/dev/shm");
  for (const BindMount& device : spec.devices) {
    arguments.add("--dev-bind", device.host.string(), device.inside.string());
  }
  // Libraries count the processors there (cpuinfo, hwloc, NUMA).
  arguments.add_parents("/sys/devices/system");
  arguments.add("--ro-bind-try", "/sys/devices/system", "/sys/devices/system");
  arguments.add("--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp");
}

void add_folders(Arguments& arguments, const SandboxSpec& spec) {
  const bool own_tmp = std::any_of(spec.mounts.begin(), spec.mounts.end(),
                                   [](const BindMount& mount) { return mount.inside == "/tmp"; });
  if (!own_tmp) arguments.add("--perms", "1777", "--tmpfs", "/tmp");
  arguments.add_parents("/opt/ml");
  arguments.add("--bind", spec.ml_folder.string(), "/opt/ml");
  for (const BindMount& mount : spec.mounts) {
    arguments.add_parents(mount.inside);
    arguments.add(mount.writable ? "--bind" : "--ro-bind", mount.host.string(),
                  mount.inside.string());
  }
  arguments.add("--remount-ro", "/", "--chdir", spec.working_folder.string());
}

}  // namespace

std::vector<std::string> bwrap_arguments(const SandboxSpec& spec, const BwrapPlan& plan) {
  Arguments arguments;
  add_namespaces(arguments, spec, plan);
  add_system(arguments, spec, plan);
  add_folders(arguments, spec);
  arguments.add("--");
  arguments.add(kEntry, std::to_string(plan.variables_fd));
  if (plan.root) {
    arguments.add(std::to_string(plan.identity.uid), std::to_string(plan.identity.gid));
  } else {
    arguments.add("-", "-");
  }
  for (const std::string& word : spec.argv) arguments.add(word);
  return arguments.take();
}

}  // namespace atelier::compute::internal
