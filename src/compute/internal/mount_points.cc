#include "compute/internal/mount_points.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"

namespace atelier::compute::internal {
namespace fs = std::filesystem;
namespace {

// The folder that holds `inside`, of those that the program writes to: the innermost.
const BindMount* holder_of(const std::vector<BindMount>& writable, const fs::path& inside) {
  const BindMount* found = nullptr;
  for (const BindMount& mount : writable) {
    const auto [end, rest] = std::ranges::mismatch(mount.inside, inside);
    const bool below = end == mount.inside.end() && rest != inside.end();
    if (below && (found == nullptr || mount.inside.native().size() > found->inside.native().size()))
      found = &mount;
  }
  return found;
}

Error in_the_way(const fs::path& inside, const fs::path& part) {
  return Error{Code::kFailedPrecondition,
               fmt::format("'{}' cannot be mounted: the program has put something else in the "
                           "place of '{}'",
                           inside.string(), part.string())};
}

Result<UniqueFd> enter(const UniqueFd& parent, const fs::path& part, const fs::path& inside,
                       const Identity& owner) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const bool made = mkdirat(parent.get(), part.c_str(), 0755) == 0;
  if (!made && errno != EEXIST) {
    return error_from_errno(fmt::format("make the mount point '{}'", inside.string()), errno);
  }
  UniqueFd folder{openat(parent.get(), part.c_str(), kFlags)};
  if (!folder && (errno == ELOOP || errno == ENOTDIR)) return in_the_way(inside, part);
  if (!folder) {
    return error_from_errno(fmt::format("open the mount point '{}'", inside.string()), errno);
  }
  if (made && fchown(folder.get(), owner.uid, owner.gid) != 0) {
    return error_from_errno(fmt::format("give the mount point '{}'", inside.string()), errno);
  }
  return folder;
}

// For a mount of a file.
Result<void> make_file(const UniqueFd& parent, const fs::path& part, const fs::path& inside) {
  struct stat info {};
  if (fstatat(parent.get(), part.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    return S_ISREG(info.st_mode) ? Result<void>{} : in_the_way(inside, part);
  }
  const UniqueFd file{
      openat(parent.get(), part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444)};
  if (file) return {};
  return error_from_errno(fmt::format("make the mount point '{}'", inside.string()), errno);
}

}  // namespace

Result<void> make_mount_points(const SandboxSpec& spec, const Identity& owner) {
  std::vector<BindMount> writable{{spec.ml_folder, "/opt/ml", true}};
  for (const BindMount& mount : spec.mounts) {
    if (mount.writable) writable.push_back(mount);
  }
  for (const BindMount& mount : spec.mounts) {
    const BindMount* holder = holder_of(writable, mount.inside);
    std::error_code failure;
    if (holder == nullptr || !fs::exists(mount.host, failure)) continue;  // bubblewrap says so
    fs::path below = mount.inside.lexically_relative(holder->inside);
    const bool is_file = !fs::is_directory(mount.host, failure);
    UniqueFd folder = TRY(open_file(holder->host, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    for (const fs::path& part : is_file ? below.parent_path() : below) {
      folder = TRY(enter(folder, part, mount.inside, owner));
    }
    if (is_file) TRY(make_file(folder, below.filename(), mount.inside));
  }
  return {};
}

}  // namespace atelier::compute::internal
