#include "jobs/leavings.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>

#include "base/file.h"
#include "base/id.h"

namespace atelier::jobs {
namespace {

namespace fs = std::filesystem;

bool is_real_folder(int parent, const std::string& name) {
  struct stat info {};
  return fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

Result<std::vector<std::string>> names_with_id_in(int folder) {
  std::vector<std::string> names = TRY(names_in(folder));
  std::erase_if(names, [&](const std::string& name) {
    return !is_name_with_id(name) || !is_real_folder(folder, name);
  });
  return names;
}

// Nothing when it is not there.
Result<std::optional<UniqueFd>> open_if_there(const fs::path& folder) {
  Result<UniqueFd> fd = open_own_folder(folder);
  if (fd) return std::optional{*std::move(fd)};
  if (fd.error().code == Code::kNotFound) return std::optional<UniqueFd>{};
  return fd.error();
}

}  // namespace

bool is_name_with_id(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot != std::string_view::npos && dot > 0 && is_random_id(name.substr(dot + 1));
}

Result<std::vector<std::string>> names_with_id(const fs::path& folder) {
  const std::optional<UniqueFd> fd = TRY(open_if_there(folder));
  return fd ? names_with_id_in(fd->get()) : std::vector<std::string>{};
}

Result<void> remove_names_with_id(const fs::path& folder) {
  const std::optional<UniqueFd> fd = TRY(open_if_there(folder));
  if (!fd) return {};
  Result<void> outcome;
  for (const std::string& name : TRY(names_with_id_in(fd->get()))) {
    const Result<void> removed = remove_tree_at(fd->get(), name);
    if (!removed) outcome = removed.error().within("'" + folder.string() + "'");
  }
  return outcome;
}

Result<fs::path> make_removed_folder(const ServiceOptions& options) {
  fs::path folder = options.removed_folder();
  const int made = mkdir(folder.c_str(), 0700);
  const int cause = errno;
  if (made != 0 && cause != EEXIST) {
    return error_from_errno("mkdir '" + folder.string() + "'", cause);
  }
  const Result<void> fine = check_own_folder(folder);
  if (!fine) return Error{Code::kIo, fine.error().message};
  return folder;
}

Result<void> check_folders(const ServiceOptions& options) {
  for (const fs::path& folder : {options.folder, options.removed_folder(), options.warm_folder()}) {
    TRY(check_own_folder(folder));
  }
  if (options.cache_folder.empty()) return {};
  TRY(check_own_folder(options.cache_folder));
  return check_own_folder(options.cache_folder / "objects");
}

}  // namespace atelier::jobs
