// remove_tree() of base/file.h, and base/own_folder.h.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/id.h"
#include "base/own_folder.h"

namespace atelier {
namespace fs = std::filesystem;

namespace {

std::string quoted(std::string_view call, const fs::path& path) {
  return std::string{call} + " '" + path.string() + "'";
}

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

// Opens a folder in `parent` that its owner may have closed to himself.
Result<UniqueFd> open_to_empty(int parent, const char* name) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd fd{openat(parent, name, kFlags)};
  if (!fd && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0) {
    fd = UniqueFd{openat(parent, name, kFlags)};
  }
  if (!fd) return error_from_errno(quoted("open", name), errno);
  return fd;
}

// False for a folder that is not empty.
Result<bool> remove_entry(int parent, const std::string& name) {
  if (unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return true;
  const int cause = errno;
  // EPERM is what POSIX has for a folder.
  if (cause != EISDIR && cause != EPERM) return error_from_errno(quoted("remove", name), cause);
  if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0) return true;
  if (errno == ENOTEMPTY || errno == EEXIST) return false;
  return error_from_errno(quoted("remove", name), errno == ENOTDIR ? cause : errno);
}

Result<void> move_folder(int from, const std::string& name, int to, const std::string& place) {
  if (renameat(from, name.c_str(), to, place.c_str()) == 0) return {};
  // A folder that changes its parent is written to.
  if (errno == EACCES && fchmodat(from, name.c_str(), 0700, 0) == 0 &&
      renameat(from, name.c_str(), to, place.c_str()) == 0) {
    return {};
  }
  return error_from_errno(quoted("move", name), errno);
}

// Empties `top`. What lies deeper comes up to it first, so that the depth of a tree, which a
// hostile program chooses, costs neither descriptors nor stack.
Result<void> remove_below(int top) {
  const std::string prefix = ".removed-" + random_id(8) + "-";
  std::uint64_t moved = 0;
  for (std::vector<std::string> names = TRY(names_in(top)); !names.empty();
       names = TRY(names_in(top))) {
    for (const std::string& name : names) {
      if (TRY(remove_entry(top, name))) continue;
      const UniqueFd folder = TRY(open_to_empty(top, name.c_str()));
      for (const std::string& inner : TRY(names_in(folder.get()))) {
        if (TRY(remove_entry(folder.get(), inner))) continue;
        const std::string place = prefix + std::to_string(moved++);
        TRY(move_folder(folder.get(), inner, top, place));
      }
      if (!TRY(remove_entry(top, name))) {
        return Error{Code::kAborted, quoted("remove", name) + ": it is being written to"};
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> names_in(int folder) {
  UniqueFd copy{openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!copy) return error_from_errno("open a folder", errno);
  const std::unique_ptr<DIR, CloseFolder> entries{fdopendir(copy.get())};
  if (!entries) return error_from_errno("read a folder", errno);
  static_cast<void>(copy.release());
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(entries.get());
    if (entry == nullptr && errno != 0) return error_from_errno("read a folder", errno);
    if (entry == nullptr) return names;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

Result<UniqueFd> open_own_folder(const fs::path& path) {
  UniqueFd fd{open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  if (fd) return fd;
  const int cause = errno;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) {
    return error_from_errno(quoted("open", path), cause);
  }
  return Error{Code::kFailedPrecondition,
               "'" + path.string() +
                   (S_ISLNK(info.st_mode)
                        ? "' is a link, and what is in this folder is removed by name: put the "
                          "folder itself there, or mount the other disk at this place (mount "
                          "--bind), or move the whole data folder"
                        : "' is no folder: move away what is there")};
}

Result<void> check_own_folder(const fs::path& path) {
  const Result<UniqueFd> folder = open_own_folder(path);
  if (folder || folder.error().code == Code::kNotFound) return {};
  return folder.error();
}

Result<void> remove_tree_at(int folder, const std::string& name) {
  if (unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return error_from_errno(quoted("remove", name), errno);
  {
    const UniqueFd top = TRY(open_to_empty(folder, name.c_str()));
    const Result<void> emptied = remove_below(top.get());
    if (!emptied) return emptied.error().within(quoted("remove", name));
  }
  if (unlinkat(folder, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return error_from_errno(quoted("remove", name), errno);
  }
  return {};
}

bool is_random_id(std::string_view text, std::size_t bytes) {
  return text.size() == bytes * 2 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<void> remove_tree(const fs::path& path) { return remove_tree_at(AT_FDCWD, path.string()); }

}  // namespace atelier
