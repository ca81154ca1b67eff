#include "agent/writing_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

namespace atelier::agent {
namespace {

// From linux/pidfd.h of 6.15; the headers that we build with may be older.
struct PidfdInfo {
  std::uint64_t mask = 0;
  std::uint64_t cgroup = 0;
  std::uint32_t ids[11] = {};
  std::int32_t exit_code = 0;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr unsigned long kPidfdGetInfo = _IOWR(0xFF, 11, PidfdInfo);
constexpr std::uint64_t kPidfdInfoExit = 1U << 3;
constexpr unsigned kExiting = 4;  // PF_EXITING
constexpr std::size_t kMaxMaps = std::size_t{64} << 20;

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};
using Dir = std::unique_ptr<DIR, CloseDir>;

// Root without CAP_SYS_PTRACE, as in a container, may not look into a process of another user: the
// process's own user may. Of this thread alone.
class AsUserOf {
 public:
  explicit AsUserOf(const ProcessId& id) : changed_(id.as_user) {
    if (!changed_) return;
    gid_ = static_cast<gid_t>(setfsgid(id.gid));
    uid_ = static_cast<uid_t>(setfsuid(id.uid));
  }
  ~AsUserOf() {
    if (!changed_) return;
    setfsuid(uid_);
    setfsgid(gid_);
  }
  AsUserOf(const AsUserOf&) = delete;
  AsUserOf& operator=(const AsUserOf&) = delete;

 private:
  const bool changed_;
  gid_t gid_ = 0;
  uid_t uid_ = 0;
};

struct ProcessStat {
  char state = 0;
  unsigned flags = 0;
  std::uint64_t start = 0;
  int exit_code = 0;
};

std::optional<ProcessStat> stat_of(const ProcessId& id) {
  // To everybody else the exit code of a process is 0, however it ended.
  const AsUserOf user{id};
  const Result<std::string> text = read_file(fmt::format("/proc/{}/stat", id.pid), 8192);
  // "pid (any name) S ...": the name may hold anything, so count from its last ')'. Numbers as in
  // proc(5), of which the state is the third.
  const std::size_t end = text ? text->rfind(')') : std::string::npos;
  if (end == std::string::npos) return {};
  std::istringstream words{text->substr(end + 1)};
  ProcessStat stat;
  std::string word;
  for (int field = 3; words >> word; ++field) {
    if (field == 3) stat.state = word.front();
    if (field == 9) stat.flags = static_cast<unsigned>(std::strtoul(word.c_str(), nullptr, 10));
    if (field == 22) stat.start = std::strtoull(word.c_str(), nullptr, 10);
    if (field == 52) stat.exit_code = std::atoi(word.c_str());
  }
  return stat;
}

Fate fate_of(int wait_status) { return WIFEXITED(wait_status) ? Fate::kExited : Fate::kUnknown; }

bool open_for_writing(pid_t pid, const char* fd) {
  const std::string text = read_file(fmt::format("/proc/{}/fdinfo/{}", pid, fd), 4096).value_or("");
  const std::size_t at = text.find("flags:");
  if (at == std::string::npos) return false;
  return (std::strtoul(text.c_str() + at + 6, nullptr, 8) & O_ACCMODE) != O_RDONLY;
}

// Calls `found` for each file that the process has open for writing.
void files_of(pid_t pid, const std::set<FileId>& wanted,
              const std::function<void(const FileId&)>& found) {
  const Dir fds{opendir(fmt::format("/proc/{}/fd", pid).c_str())};
  if (!fds) return;
  while (const dirent* entry = readdir(fds.get())) {
    struct stat info {};
    if (fstatat(dirfd(fds.get()), entry->d_name, &info, 0) != 0 || !S_ISREG(info.st_mode)) continue;
    const FileId file{info.st_dev, info.st_ino};
    if (wanted.contains(file) && open_for_writing(pid, entry->d_name)) found(file);
  }
}

// The same of files that it has mapped, shared and for writing. Their device is not compared: some
// file systems show another one there.
void maps_of(pid_t pid, const std::set<FileId>& wanted,
             const std::function<void(const FileId&)>& found) {
  std::istringstream maps{read_file(fmt::format("/proc/{}/maps", pid), kMaxMaps).value_or("")};
  std::string line;
  while (std::getline(maps, line)) {
    std::istringstream words{line};
    std::string range, rights, offset, device;
    ino_t inode = 0;
    if (!(words >> range >> rights >> offset >> device >> inode) || rights.size() != 4) continue;
    if (rights[1] != 'w' || rights[3] != 's') continue;
    for (const FileId& file : wanted) {
      if (file.second == inode) found(file);
    }
  }
}

std::vector<ProcessId> processes_of(const std::vector<uid_t>& owners) {
  std::vector<ProcessId> found;
  const Dir proc{opendir("/proc")};
  while (const dirent* entry = proc ? readdir(proc.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), pid);
    struct stat info {};
    if (failure != std::errc{} || end != name.data() + name.size() ||
        fstatat(dirfd(proc.get()), entry->d_name, &info, 0) != 0) {
      continue;
    }
    if (std::ranges::find(owners, info.st_uid) != owners.end()) {
      char byte = 0;
      const ssize_t got = readlink(fmt::format("/proc/{}/exe", pid).c_str(), &byte, 1);
      found.push_back({pid, info.st_uid, info.st_gid, got < 0 && errno == EACCES});
    }
  }
  return found;
}

}  // namespace

std::map<FileId, Writers> find_writers(const std::vector<FileId>& files,
                                       const std::vector<uid_t>& owners) {
  std::map<FileId, Writers> writers;
  std::set<FileId> wanted(files.begin(), files.end());
  const std::vector<ProcessId> processes = processes_of(owners);
  for (auto* look : {&files_of, &maps_of}) {
    for (const ProcessId& id : processes) {
      const AsUserOf user{id};
      (*look)(id.pid, wanted, [&](const FileId& file) {
        UniqueFd pidfd{static_cast<int>(syscall(SYS_pidfd_open, id.pid, 0))};
        const auto stat = stat_of(id);
        if (!pidfd || !stat) return;
        const auto process = std::make_shared<WritingProcess>(id, stat->start, std::move(pidfd));
        writers[file].emplace(fmt::format("{} {}", id.pid, stat->start),
                              [process] { return process->fate(); });
      });
    }
    // Mappings take longer to read, and most writers have none.
    for (const auto& [file, found] : writers) wanted.erase(file);
    if (wanted.empty()) break;
  }
  return writers;
}

Fate WritingProcess::fate() const {
  const auto stat = stat_of(id_);
  if (stat && stat->start == start_) {
    if (stat->state == 'Z' || stat->state == 'X') return fate_of(stat->exit_code);
    // Its files are closed before it is gone.
    return (stat->flags & kExiting) != 0 ? Fate::kLeaving : Fate::kLives;
  }
  PidfdInfo info;
  info.mask = kPidfdInfoExit;
  if (ioctl(pidfd_.get(), kPidfdGetInfo, &info) != 0 || (info.mask & kPidfdInfoExit) == 0) {
    return Fate::kUnknown;
  }
  return fate_of(info.exit_code);
}

}  // namespace atelier::agent
