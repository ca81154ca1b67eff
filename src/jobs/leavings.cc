#include "jobs/leavings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/own_folder.h"

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

// A folder of jobs has a spec.json in each one that was ever started.
Result<bool> has_jobs(const fs::path& folder) {
  const std::optional<UniqueFd> fd = TRY(open_if_there(folder));
  if (!fd) return false;
  const std::vector<std::string> names = TRY(names_in(fd->get()));
  return std::ranges::any_of(names, [&](const std::string& name) {
    return is_real_folder(fd->get(), name) &&
           faccessat(fd->get(), (name + "/spec.json").c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  });
}

// New records would know nothing of them: their names would be gone, their pools be removed.
Result<void> check_records(const ServiceOptions& options) {
  const fs::path records = options.folder / "jobs.db";
  struct stat info {};
  const bool there = stat(records.c_str(), &info) == 0;
  if (there && info.st_size > 0) return {};
  if (!there && errno != ENOENT) return error_from_errno("stat '" + records.string() + "'", errno);
  const bool jobs = TRY(has_jobs(options.folder));
  if (!jobs && TRY(names_with_id(options.warm_folder())).empty()) return {};
  return Error{Code::kFailedPrecondition,
               fmt::format("'{}' is {}, and there are {} in '{}': restore jobs.db, with "
                           "jobs.db-wal where there is one, or move that folder away to begin "
                           "without them",
                           records.string(), there ? "empty" : "missing",
                           jobs ? "folders of jobs" : "warm pools",
                           (jobs ? options.folder : options.warm_folder()).string())};
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
  if (!options.cache_folder.empty()) {
    TRY(check_own_folder(options.cache_folder));
    TRY(check_own_folder(options.cache_folder / "objects"));
  }
  return check_records(options);
}

}  // namespace atelier::jobs
