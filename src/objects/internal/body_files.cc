#include "objects/internal/body_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <limits>
#include <optional>
#include <system_error>
#include <vector>

#include "base/id.h"
#include "base/own_folder.h"

namespace atelier::objects::internal {
namespace fs = std::filesystem;
namespace {

// What a stop that was cut short can have left: as many bodies as were on their way at once, each
// written to until then.
constexpr std::size_t kMostCutShort = 1000;
constexpr std::int64_t kCutShortSeconds = 600;

std::string folder_name(std::uint64_t number) { return fmt::format("{:08}", number); }

std::optional<std::uint64_t> parse_folder(std::string_view text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc{} || at != end || text.size() < 8) return std::nullopt;
  return number;
}

std::uint64_t folder_of(std::string_view name) {
  return parse_folder(name.substr(0, name.find('/'))).value_or(0);
}

Result<std::vector<std::string>> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator at{folder, failure}, end; !failure && at != end;
       at.increment(failure)) {
    names.push_back(at->path().filename().string());
  }
  if (failure) return error_from_errno("read folder '" + folder.string() + "'", failure.value());
  return names;
}

}  // namespace

Result<std::unique_ptr<BodyFiles>> BodyFiles::open(const fs::path& root) {
  TRY(check_own_folder(root));
  TRY(make_folders(root, 0700));
  std::unique_ptr<BodyFiles> files{new BodyFiles{root}};
  for (const std::string& name : TRY(names_in(root))) {
    files->folder_ = std::max(files->folder_, parse_folder(name).value_or(0));
  }
  const fs::path newest = root / folder_name(files->folder_);
  TRY(make_folders(newest, 0700));
  TRY(sync_folder(root));
  files->in_folder_ = TRY(names_in(newest)).size();
  return files;
}

Result<std::string> BodyFiles::new_name() {
  const std::lock_guard lock{mutex_};
  if (in_folder_ >= kFilesPerFolder) {
    const fs::path next = root_ / folder_name(folder_ + 1);
    TRY(make_folders(next, 0700));
    TRY(sync_folder(root_));
    ++folder_;
    in_folder_ = 0;
  }
  ++in_folder_;
  ++pending_[folder_];
  return folder_name(folder_) + "/" + random_id();
}

Result<BodyFiles::NewFile> BodyFiles::create() {
  std::string name = TRY(new_name());
  Result<UniqueFd> fd = open_file(root_ / name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (!fd) {
    adopted(name);
    return fd.error();
  }
  return NewFile{std::move(name), *std::move(fd)};
}

Result<std::string> BodyFiles::link(const std::string& name) {
  std::string copy = TRY(new_name());
  if (::link((root_ / name).c_str(), (root_ / copy).c_str()) != 0) {
    const int cause = errno;
    adopted(copy);
    return error_from_errno("link '" + (root_ / name).string() + "'", cause);
  }
  Result<void> synced = sync_folder((root_ / copy).parent_path());
  if (!synced) {
    remove(copy);
    adopted(copy);
    return synced.error();
  }
  return copy;
}

Result<void> BodyFiles::sync(const std::string& name, int fd) {
  if (fsync(fd) != 0) return error_from_errno("fsync '" + (root_ / name).string() + "'", errno);
  return sync_folder((root_ / name).parent_path());
}

void BodyFiles::adopted(const std::string& name) {
  const std::lock_guard lock{mutex_};
  const auto at = pending_.find(folder_of(name));
  if (at != pending_.end() && --at->second == 0) pending_.erase(at);
}

void BodyFiles::remove(const std::string& name) { ::unlink((root_ / name).c_str()); }

Result<UniqueFd> BodyFiles::open_body(const std::string& name) const {
  return open_file(root_ / name, O_RDONLY);
}

Result<UniqueFd> BodyFiles::open_for_writing(const std::string& name) const {
  return open_file(root_ / name, O_RDWR);
}

std::uint64_t BodyFiles::low_water() const {
  const std::lock_guard lock{mutex_};
  return pending_.empty() ? folder_ : std::min(folder_, pending_.begin()->first);
}

Result<bool> BodyFiles::any() const {
  for (const std::string& folder : TRY(names_in(root_))) {
    if (!parse_folder(folder)) continue;
    const UniqueFd opened = TRY(open_own_folder(root_ / folder));
    if (std::ranges::any_of(TRY(atelier::names_in(opened.get())),
                            [](const std::string& name) { return is_random_id(name); })) {
      return true;
    }
  }
  return false;
}

Result<BodyFiles::Swept> BodyFiles::sweep(
    std::uint64_t low_water, const std::function<Result<bool>(const std::string&)>& has_row,
    bool cut_short, const fs::path& aside) {
  std::vector<std::string> orphans;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = std::numeric_limits<std::int64_t>::min();
  for (const std::string& folder : TRY(names_in(root_))) {
    const std::optional<std::uint64_t> number = parse_folder(folder);
    if (!number || *number < low_water) continue;
    const UniqueFd opened = TRY(open_own_folder(root_ / folder));
    for (const std::string& file : TRY(atelier::names_in(opened.get()))) {
      std::string name = folder + "/" + file;
      struct stat info {};
      if (!is_random_id(file) || TRY(has_row(name)) ||
          fstatat(opened.get(), file.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
          !S_ISREG(info.st_mode)) {
        continue;
      }
      // A second name for a body is as old as that name.
      const std::int64_t written = info.st_nlink > 1 ? info.st_ctim.tv_sec : info.st_mtim.tv_sec;
      first = std::min(first, written);
      last = std::max(last, written);
      orphans.push_back(std::move(name));
    }
  }
  if (orphans.empty()) return Swept{};
  if (cut_short && orphans.size() <= kMostCutShort && last - first <= kCutShortSeconds) {
    for (const std::string& name : orphans) remove(name);
    return Swept{orphans.size(), 0};
  }
  for (const std::string& name : orphans) {
    TRY(make_folders((aside / name).parent_path(), 0700));
    if (rename((root_ / name).c_str(), (aside / name).c_str()) != 0) {
      return error_from_errno("move '" + (root_ / name).string() + "' to '" + aside.string() + "'",
                              errno);
    }
  }
  return Swept{0, orphans.size()};
}

}  // namespace atelier::objects::internal
