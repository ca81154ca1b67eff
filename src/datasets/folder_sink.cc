#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <unordered_set>

#include "base/file.h"
#include "datasets/import.h"
#include "datasets/internal/manifest.h"

namespace atelier::datasets {
namespace {

namespace fs = std::filesystem;

// Everything is made in STAGING/data and becomes FOLDER by one rename. STAGING/lock keeps a second
// import away.
class FolderSink final : public Sink {
 public:
  FolderSink(fs::path folder, fs::path staging, UniqueFd lock)
      : folder_(std::move(folder)), staging_(std::move(staging)), lock_(std::move(lock)) {}
  ~FolderSink() override {
    ignore_error(remove_tree(staging_), "the next import clears what is left");
  }

  Result<std::optional<std::string>> manifest() override {
    Result<std::string> text = read_file(folder_ / kManifestName, std::size_t{64} << 20);
    if (text) return std::optional<std::string>(*std::move(text));
    if (text.error().code == Code::kNotFound) return std::optional<std::string>();
    return text.error();
  }

  Result<void> put(std::string path, std::string bytes) override {
    TRY(check_relative_path(path));
    const fs::path target = staging_ / "data" / path;
    if (made_.insert(target.parent_path().string()).second) TRY(make_folders(target.parent_path()));
    // Not synced one by one: finish() syncs all of them before anything can be seen.
    const UniqueFd fd = TRY(open_file(target, O_WRONLY | O_CREAT | O_EXCL, 0644));
    return write_all(fd.get(), bytes);
  }

  Result<void> finish(std::string manifest) override {
    const fs::path data = staging_ / "data";
    TRY(make_folders(data));
    TRY(write_file_durably(data / kManifestName, manifest));
    const UniqueFd fd = TRY(open_file(data, O_RDONLY | O_DIRECTORY));
    if (::syncfs(fd.get()) != 0)
      return error_from_errno(fmt::format("syncfs '{}'", data.string()), errno);
    TRY(reveal(data));
    return sync_folder(folder_.parent_path());
  }

 private:
  // Swaps the new folder with what is there (an empty folder, or an earlier import, which the
  // destructor removes).
  Result<void> reveal(const fs::path& data) const {
    if (::rename(data.c_str(), folder_.c_str()) == 0) return {};
    if (::renameat2(AT_FDCWD, data.c_str(), AT_FDCWD, folder_.c_str(), RENAME_EXCHANGE) == 0)
      return {};
    return error_from_errno(fmt::format("rename '{}' to '{}'", data.string(), folder_.string()),
                            errno);
  }

  fs::path folder_;
  fs::path staging_;
  UniqueFd lock_;
  std::unordered_set<std::string> made_;
};

}  // namespace

Result<std::unique_ptr<Sink>> folder_sink(const fs::path& folder) {
  std::error_code failed;
  fs::path full = fs::absolute(folder, failed).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  if (failed || !full.has_filename()) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' is no folder to import into", folder.string())};
  }
  if (fs::exists(full, failed) && !fs::exists(full / kManifestName, failed) &&
      (!fs::is_directory(full, failed) || !fs::is_empty(full, failed))) {
    return Error{
        Code::kAlreadyExists,
        fmt::format("'{}' is there and holds no {}: it is no earlier import, and is left alone",
                    full.string(), kManifestName)};
  }
  const fs::path staging =
      full.parent_path() / fmt::format(".{}.importing", full.filename().string());
  TRY(make_folders(staging));
  UniqueFd lock = TRY(lock_file(staging / "lock"));
  TRY(remove_tree(staging / "data"));
  return std::unique_ptr<Sink>(new FolderSink(full, staging, std::move(lock)));
}

}  // namespace atelier::datasets
