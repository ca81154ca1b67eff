#include "compute/internal/cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "base/id.h"

namespace atelier::compute::internal {
namespace fs = std::filesystem;
namespace {

constexpr int kPeriodMicroseconds = 100000;  // the kernel's own default for a CPU quota
constexpr int kMaxProcesses = 16384;         // threads included: stops a fork bomb, nothing else
constexpr std::size_t kUniqueDigits = 8;

bool put(const fs::path& file, std::string_view text) {
  const Result<UniqueFd> fd = open_file(file, O_WRONLY);
  return fd && write_all(fd->get(), text);
}

std::string text_of(const fs::path& file) {
  return read_file(file, std::size_t{1} << 20).value_or(std::string{});
}

// The number after `key` in lines of "key number".
std::uint64_t counter(const fs::path& file, std::string_view key) {
  std::istringstream lines{text_of(file)};
  std::string name;
  std::uint64_t value = 0;
  while (lines >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

struct Hierarchies {
  std::optional<fs::path> v2;          // our own group in the unified hierarchy
  std::map<std::string, fs::path> v1;  // and in that of each controller
};

// Our group of a hierarchy: mount point and path, where the mount may show a part only.
fs::path own_group(const fs::path& mount, const std::string& root, const std::string& path) {
  std::string relative = path;
  if (root != "/" && relative.rfind(root, 0) == 0) relative.erase(0, root.size());
  fs::path group = mount;
  group += relative == "/" ? "" : relative;
  std::error_code failure;
  return fs::is_directory(group, failure) ? group : mount;
}

// "9:cpu,cpuacct:/path" by controller; the unified hierarchy has the empty name.
std::map<std::string, std::string> own_paths(const std::string& text) {
  std::map<std::string, std::string> paths;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::istringstream controllers{line.substr(first + 1, second - first - 1)};
    const std::string path = line.substr(second + 1);
    if (second == first + 1) paths[""] = path;
    for (std::string name; std::getline(controllers, name, ',');) paths[name] = path;
  }
  return paths;
}

Hierarchies find_hierarchies(const CgroupPlaces& places) {
  Hierarchies found;
  const auto paths = own_paths(text_of(places.own));
  std::istringstream lines{text_of(places.mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before{line.substr(0, dash)};
    std::istringstream after{line.substr(dash + 3)};
    std::string skip, root, mount, type, source, options;
    before >> skip >> skip >> skip >> root >> mount;
    after >> type >> source >> options;
    if (type == "cgroup2") {
      const auto own = paths.find("");
      if (own != paths.end()) found.v2 = own_group(mount, root, own->second);
    } else if (type == "cgroup") {
      std::istringstream names{options};
      for (std::string name; std::getline(names, name, ',');) {
        const auto own = paths.find(name);
        if (own != paths.end()) found.v1.emplace(name, own_group(mount, root, own->second));
      }
    }
  }
  return found;
}

bool lists(const fs::path& file, std::string_view word) {
  std::istringstream words{text_of(file)};
  for (std::string item; words >> item;) {
    if (item == word) return true;
  }
  return false;
}

// Whether groups below `parent` get memory and CPU limits, switching them on where that is allowed.
bool delegates(const fs::path& parent) {
  if (!lists(parent / "cgroup.controllers", "memory")) return false;
  if (!lists(parent / "cgroup.subtree_control", "memory")) {
    put(parent / "cgroup.subtree_control", "+memory +cpu +pids");
  }
  return lists(parent / "cgroup.subtree_control", "memory");
}

// The name in "atelier-NAME-" and the eight digits that create() appends; empty for what is no
// group of ours.
std::string name_of_group(std::string_view folder) {
  constexpr std::string_view kStart = "atelier-";
  if (folder.rfind(kStart, 0) != 0 || folder.size() < kStart.size() + kUniqueDigits + 2) return {};
  const std::size_t end = folder.size() - kUniqueDigits - 1;
  const std::string_view digits = folder.substr(end + 1);
  if (folder[end] != '-' ||
      digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    return {};
  }
  return std::string{folder.substr(kStart.size(), end - kStart.size())};
}

std::vector<fs::path> parents_of_groups(const CgroupPlaces& places) {
  const Hierarchies found = find_hierarchies(places);
  std::vector<fs::path> parents;
  if (found.v2) parents = {*found.v2, found.v2->parent_path()};
  for (const auto& [controller, parent] : found.v1) parents.push_back(parent);
  return parents;
}

// Whether a word of the process's command line is `word`.
bool was_started_with(pid_t pid, std::string_view word) {
  const std::string line = text_of(fmt::format("/proc/{}/cmdline", pid));
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find('\0', begin), line.size());
    if (std::string_view{line}.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

// bubblewrap's first process inside waits for the one outside before it can follow it into death: a
// kill of the agent in that moment leaves it waiting for ever. A pidfd is taken before the look, so
// that the process that is killed is the one that was looked at.
void kill_unstarted(const fs::path& group, const std::string& ml_folder) {
  std::istringstream pids{text_of(group / "cgroup.procs")};
  for (pid_t pid = 0; pids >> pid;) {
    const UniqueFd process{static_cast<int>(syscall(SYS_pidfd_open, pid, 0))};
    if (process && was_started_with(pid, ml_folder)) {
      syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
    }
  }
}

std::string describe(const Limits& limits) {
  const std::string cpus = limits.cpus > 0 ? fmt::format("{:g} CPUs", limits.cpus) : "all CPUs";
  if (limits.memory_bytes == 0) return cpus + ", all memory";
  return cpus + fmt::format(", {:.3g} GiB of memory",
                            static_cast<double>(limits.memory_bytes) / (1 << 30));
}

}  // namespace

Cgroup Cgroup::create(std::string_view name, const Limits& limits, const CgroupPlaces& places) {
  Cgroup group;
  const std::string unique = fmt::format("atelier-{}-{}", name, random_id(kUniqueDigits / 2));
  const Hierarchies found = find_hierarchies(places);
  if (found.v2) {
    // A group with processes in it cannot hand its controllers on, so a group beside ours serves as
    // well as one below it.
    for (const fs::path& parent : {*found.v2, found.v2->parent_path()}) {
      if (delegates(parent) && group.create_v2(unique, limits, parent)) {
        group.words_ = "cgroup v2: " + describe(limits);
        return group;
      }
    }
  }
  group.per_process_ = limits;
  const auto v1 = [&](const char* controller) {
    const auto parent = found.v1.find(controller);
    return parent != found.v1.end() && group.create_v1(unique, limits, controller, parent->second);
  };
  if (v1("memory")) group.per_process_.memory_bytes = 0;
  if (v1("cpu")) group.per_process_.cpus = 0;
  v1("pids");
  const bool memory = !group.memory_folder_.empty();
  const bool cpu = group.per_process_.cpus == 0;
  if (memory && cpu) {
    group.words_ = "cgroup v1: " + describe(limits);
  } else if (memory) {
    group.words_ = "cgroup v1 for memory, CPU affinity of each process: " + describe(limits);
  } else {
    group.words_ = "no cgroup could be made, so by limits of each process: " + describe(limits);
  }
  return group;
}

bool Cgroup::create_v2(std::string_view name, const Limits& limits, const fs::path& parent) {
  const fs::path folder = parent / name;
  if (mkdir(folder.c_str(), 0755) != 0) return false;
  bool good = true;
  if (limits.memory_bytes > 0) {
    good = put(folder / "memory.max", std::to_string(limits.memory_bytes));
    put(folder / "memory.swap.max", "0");  // not there without swap accounting
  }
  if (limits.cpus > 0) {
    good = good && put(folder / "cpu.max",
                       fmt::format("{} {}", std::llround(limits.cpus * kPeriodMicroseconds),
                                   kPeriodMicroseconds));
  }
  put(folder / "pids.max", std::to_string(kMaxProcesses));
  Result<UniqueFd> procs = open_file(folder / "cgroup.procs", O_WRONLY);
  if (!good || !procs) {
    rmdir(folder.c_str());
    return false;
  }
  memory_folder_ = folder;
  folders_.push_back(folder);
  join_.push_back(*std::move(procs));
  clone_fd_ = open_file(folder, O_RDONLY | O_DIRECTORY).value_or(UniqueFd{});
  return true;
}

bool Cgroup::create_v1(std::string_view name, const Limits& limits, const std::string& controller,
                       const fs::path& parent) {
  const fs::path folder = parent / name;
  if (mkdir(folder.c_str(), 0755) != 0) return false;
  bool good = true;
  if (controller == "memory" && limits.memory_bytes > 0) {
    const std::string bytes = std::to_string(limits.memory_bytes);
    good = put(folder / "memory.limit_in_bytes", bytes);
    put(folder / "memory.memsw.limit_in_bytes", bytes);  // not there without swap accounting
  } else if (controller == "cpu" && limits.cpus > 0) {
    good = put(folder / "cpu.cfs_period_us", std::to_string(kPeriodMicroseconds)) &&
           put(folder / "cpu.cfs_quota_us",
               std::to_string(std::llround(limits.cpus * kPeriodMicroseconds)));
  } else if (controller == "pids") {
    good = put(folder / "pids.max", std::to_string(kMaxProcesses));
  }
  // Not cgroup.procs: moving a whole process makes the kernel take a lock that may wait for an RCU
  // grace period; moving the thread that asks for it does not. Kept because it costs nothing: one
  // trace showed the wait (11 ms), but medians of the whole start did not move.
  Result<UniqueFd> tasks = open_file(folder / "tasks", O_WRONLY);
  if (!good || !tasks) {
    rmdir(folder.c_str());
    return false;
  }
  if (controller == "memory") memory_folder_ = folder;
  folders_.push_back(folder);
  join_.push_back(*std::move(tasks));
  return true;
}

Cgroup::~Cgroup() {
  for (const fs::path& folder : folders_) {
    // The processes are dead or dying (their PID namespace has ended); the kernel lets the folder
    // go when the last of them is gone, which takes it a moment.
    for (int attempt = 0; attempt < 200 && rmdir(folder.c_str()) != 0 && errno == EBUSY;
         ++attempt) {
      std::istringstream pids{text_of(folder / "cgroup.procs")};
      for (pid_t pid = 0; pids >> pid;) kill(pid, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
  }
}

std::vector<std::string> names_of_left_cgroups(std::chrono::seconds age,
                                               const CgroupPlaces& places) {
  std::set<std::string> names;
  for (const fs::path& parent : parents_of_groups(places)) {
    std::error_code failure;
    for (const auto& entry : fs::directory_iterator(parent, failure)) {
      const std::string folder = entry.path().filename().string();
      const std::string name = name_of_group(folder);
      struct stat info {};
      if (name.empty() || stat(entry.path().c_str(), &info) != 0) continue;
      const bool old = time(nullptr) - info.st_ctime >= age.count();
      if (old && text_of(entry.path() / "cgroup.procs").empty()) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

void remove_left_cgroups(std::string_view name, const fs::path& ml_folder,
                         const CgroupPlaces& places) {
  for (const fs::path& parent : parents_of_groups(places)) {
    std::error_code failure;
    for (const auto& entry : fs::directory_iterator(parent, failure)) {
      if (name_of_group(entry.path().filename().string()) != name) continue;
      // Nothing else inside is killed: it may be of a job of this name under another server.
      if (!ml_folder.empty()) kill_unstarted(entry.path(), ml_folder.string());
      for (int attempt = 0; attempt < 100 && rmdir(entry.path().c_str()) != 0 && errno == EBUSY;
           ++attempt) {
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
      }
    }
  }
}

std::vector<int> Cgroup::join_fds() const {
  std::vector<int> fds;
  for (const UniqueFd& fd : join_) fds.push_back(fd.get());
  return fds;
}

std::uint64_t Cgroup::out_of_memory_kills() const {
  if (memory_folder_.empty()) return 0;
  return std::max(counter(memory_folder_ / "memory.events", "oom_kill"),
                  counter(memory_folder_ / "memory.oom_control", "oom_kill"));
}

}  // namespace atelier::compute::internal
