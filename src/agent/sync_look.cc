#include "agent/sync_look.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/writing_process.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kMaxFiles = 250'000;
constexpr int kMaxDepth = 100;

// A program may give its files any time: those past the year 2255 count as of its end, as in
// parse_time_words().
std::int64_t nanoseconds(const timespec& time) {
  constexpr std::int64_t kMost = 9'000'000'000;
  return std::clamp(std::int64_t{time.tv_sec}, -kMost, kMost) * 1'000'000'000 + time.tv_nsec;
}

FileVersion version_in(const struct stat& info) {
  return {static_cast<std::uint64_t>(info.st_size), info.st_ino, nanoseconds(info.st_mtim),
          nanoseconds(info.st_ctim)};
}

// The kernel grants a read lease only while nobody has the file open for writing. It is given back
// at once: as long as it is held, a writer's open() waits.
int try_lease(int fd) {
  // Where a writer comes in that moment, the notice must be a signal that ends no process.
  if (fcntl(fd, F_SETSIG, SIGURG) != 0 || fcntl(fd, F_SETLEASE, F_RDLCK) != 0) return errno;
  fcntl(fd, F_SETLEASE, F_UNLCK);
  return 0;
}

class Walk {
 public:
  Walk(const std::function<bool(std::string_view, const FileVersion&)>& is_known, Look& look)
      : is_known_(is_known), look_(look) {}

  Result<void> folder(const UniqueFd& fd, const std::string& prefix, int depth) {
    if (depth > kMaxDepth) {
      return Error{Code::kResourceExhausted,
                   fmt::format("'{}' is more than {} folders deep", prefix, kMaxDepth)};
    }
    for (const std::string& name : TRY(names_in_folder(fd.get()))) {
      struct stat info {};
      if (fstatat(fd.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        TRY(gone("stat", prefix + name));
      } else if (S_ISDIR(info.st_mode)) {
        const UniqueFd inner{
            openat(fd.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
        TRY(inner ? folder(inner, prefix + name + "/", depth + 1) : gone("open", prefix + name));
      } else if (S_ISREG(info.st_mode)) {
        TRY(file(fd, name, prefix + name, info));
      }
    }
    return {};
  }

  // Who writes those that are written. A writer who closed the file while we looked for it is found
  // by the next look: the file is still taken for one that is written.
  void find_writers_in(const MlTree& tree, const std::string& folder) {
    if (written_.empty()) return;
    std::vector<FileId> files;
    for (const auto& [path, id] : written_) files.push_back(id);
    std::map<FileId, Writers> writers = find_writers(files, owners_);
    for (const auto& [path, id] : written_) {
      SeenFile& seen = look_.find(path)->second;
      seen.writers = writers[id];
      if (!seen.writers.empty()) continue;
      const Result<UniqueFd> fd = tree.open_file(folder.empty() ? path : folder + "/" + path);
      seen.unknown_writer = fd && has_writer(fd->get());
    }
  }

 private:
  struct Written {
    std::string path;
    FileId id;
  };
  Result<void> file(const UniqueFd& folder, const std::string& name, std::string path,
                    const struct stat& info) {
    if (look_.size() >= kMaxFiles) {
      return Error{Code::kResourceExhausted, fmt::format("it has more than {} files", kMaxFiles)};
    }
    SeenFile seen{version_in(info)};
    if (!is_known_(path, seen.version)) {
      const UniqueFd fd{openat(folder.get(), name.c_str(),
                               O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC)};
      if (!fd) return gone("open", path);
      seen.writer = has_writer(fd.get());
      if (seen.writer) {
        written_.push_back({path, {info.st_dev, info.st_ino}});
        if (std::ranges::find(owners_, info.st_uid) == owners_.end()) {
          owners_.push_back(info.st_uid);
        }
      }
    }
    look_.emplace(std::move(path), std::move(seen));
    return {};
  }

  // What vanished or was replaced by a link in this moment is not there. Any other failure must not
  // look like that: what is not there is removed from S3.
  static Result<void> gone(std::string_view call, const std::string& path) {
    if (errno == ENOENT || errno == ELOOP || errno == ENOTDIR) return {};
    return error_from_errno(fmt::format("{} '{}'", call, path), errno);
  }

  const std::function<bool(std::string_view, const FileVersion&)>& is_known_;
  Look& look_;
  std::vector<Written> written_;
  std::vector<uid_t> owners_;
};

}  // namespace

Result<FileVersion> version_of(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return error_from_errno("fstat", errno);
  return version_in(info);
}

bool has_writer(int fd) {
  int failure = try_lease(fd);
  struct stat info {};
  if (failure == EACCES && fstat(fd, &info) == 0) {
    // Root without CAP_LEASE, as in a container: the file's owner may ask.
    const auto before = static_cast<uid_t>(setfsuid(info.st_uid));
    failure = try_lease(fd);
    setfsuid(before);
  }
  return failure == EAGAIN;
}

Result<Look> look_at_folder(
    const MlTree& tree, const std::string& folder,
    const std::function<bool(std::string_view name, const FileVersion&)>& is_known) {
  Look look;
  const UniqueFd fd = TRY(tree.open_folder(folder));
  Walk walk(is_known, look);
  TRY(walk.folder(fd, "", 0));
  // A folder that is removed while it is read, or before, can still be read, as an empty one.
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return error_from_errno("fstat", errno);
  if (info.st_nlink == 0) return Error{Code::kNotFound, "'" + folder + "' is removed"};
  walk.find_writers_in(tree, folder);
  return look;
}

}  // namespace atelier::agent
