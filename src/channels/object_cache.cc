#include "channels/object_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/hash.h"
#include "base/own_folder.h"
#include "base/parallel.h"

namespace atelier::channels {
namespace fs = std::filesystem;
namespace {

// Between two batches the connections run dry for a moment, so they are large; but a stop has to
// get through.
constexpr std::size_t kBatchFiles = 4000;
constexpr std::uint64_t kBatchBytes = std::uint64_t{2} << 30;
constexpr std::size_t kLinkThreads = 4;
constexpr std::chrono::milliseconds kClaimPause{20};
// The kernel walks all locks of a file for each new one: 14 % of a download's CPU time with one
// file.
constexpr std::size_t kClaimFiles = 64;
// What was used within it counts as equally new, so that a use is seldom a write.
constexpr std::int64_t kUseSeconds = 3600;
constexpr std::int64_t kStaleSeconds = 3600;  // of a download that nobody goes on with
constexpr std::string_view kPartEnd = ".part";

struct Entry {
  fs::path path;
  std::int64_t used = 0;     // seconds since 1970
  std::int64_t written = 0;  // nanoseconds
  std::uint64_t bytes = 0;
  bool linked = false;
};

std::int64_t now_seconds() { return std::int64_t{time(nullptr)}; }

// A download of another process holds the lock of its file (objects/s3_transfer.cc), however long
// it waits for its server.
bool is_abandoned(const fs::path& part) {
  const Result<UniqueFd> fd = open_file(part, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  return fd && flock(fd->get(), LOCK_EX | LOCK_NB) == 0;
}

// Whether `path` is one of ours, an entry (XX/XX<62 digits>) or a download (XX/.<16 digits>.part):
// nothing else in there is removed.
bool is_of_the_cache(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string folder = path.parent_path().filename().string();
  const std::string_view text = name;
  if (!is_random_id(folder, 1)) return false;
  if (is_random_id(text, 32)) return text.starts_with(folder);
  return text.starts_with('.') && text.ends_with(kPartEnd) &&
         is_random_id(text.substr(1, text.size() - 1 - kPartEnd.size()), 8);
}

// Neither may be a link: what the cache evicts, it finds by name.
Result<void> check_cache(const fs::path& folder) {
  TRY(check_own_folder(folder));
  return check_own_folder(folder / "objects");
}

// What downloads that were killed have left.
void remove_abandoned_parts(const fs::path& folder) {
  std::error_code failure;
  for (fs::recursive_directory_iterator it{folder / "objects", failure}, end; it != end;
       it.increment(failure)) {
    struct stat info {};
    if (failure || !it->path().native().ends_with(kPartEnd) || !is_of_the_cache(it->path()) ||
        lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      continue;
    }
    // One that was made a moment ago may not be locked yet.
    if (info.st_mtim.tv_sec + kStaleSeconds < now_seconds() && is_abandoned(it->path())) {
      unlink(it->path().c_str());
    }
  }
}

// All entries, in no order; those of downloads under way are left out.
Result<std::vector<Entry>> entries_in(const fs::path& folder) {
  std::vector<Entry> entries;
  std::error_code failure;
  for (fs::recursive_directory_iterator it{folder / "objects", failure}, end; it != end;
       it.increment(failure)) {
    if (failure) break;
    struct stat info {};
    if (lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (it->path().native().ends_with(kPartEnd) || !is_of_the_cache(it->path())) continue;
    entries.push_back({it->path(), info.st_atim.tv_sec,
                       info.st_mtim.tv_sec * std::int64_t{1'000'000'000} + info.st_mtim.tv_nsec,
                       static_cast<std::uint64_t>(info.st_size), info.st_nlink > 1});
  }
  if (failure && failure != std::errc::no_such_file_or_directory) {
    return error_from_errno("read '" + (folder / "objects").string() + "'", failure.value());
  }
  return entries;
}

Result<UniqueFd> hold_eviction(const fs::path& folder) {
  UniqueFd fd = TRY(open_file(folder / "eviction", O_RDWR | O_CREAT, 0600));
  while (flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return error_from_errno("lock the cache", errno);
  }
  return fd;
}

struct Boot {
  std::string id;
  std::int64_t synced = 0;  // entries written before, in nanoseconds, are on the disk
};

Boot read_boot(const fs::path& folder) {
  const std::string text = read_file(folder / "boot", 200).value_or("");
  Boot boot;
  const std::size_t end = text.find('\n');
  boot.id = text.substr(0, end);
  if (end == std::string::npos) return boot;
  std::from_chars(text.data() + end + 1, text.data() + text.size(), boot.synced);
  return boot;
}

Result<void> write_boot(const fs::path& folder, const Boot& boot) {
  return write_file_durably(folder / "boot", fmt::format("{}\n{}\n", boot.id, boot.synced), 0600);
}

// After a power cut what was not on the disk yet may be a file of zeros. Without one (an agent that
// was killed) every entry that has its name is whole.
Result<void> drop_unsynced(const fs::path& folder) {
  std::string id = TRY(read_file("/proc/sys/kernel/random/boot_id", 100));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  if (read_boot(folder).id == id) return {};
  const UniqueFd lock = TRY(hold_eviction(folder));
  Boot boot = read_boot(folder);
  if (boot.id == id) return {};
  for (const Entry& entry : TRY(entries_in(folder))) {
    if (entry.written >= boot.synced) unlink(entry.path.c_str());
  }
  boot.id = id;
  return write_boot(folder, boot);
}

Result<std::uint64_t> free_bytes(const fs::path& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) {
    return error_from_errno("statvfs '" + folder.string() + "'", errno);
  }
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

Result<void> copy_bytes(int from, int to, std::uint64_t size) {
  if (ioctl(to, FICLONE, from) == 0) return {};
  for (std::uint64_t done = 0; done < size;) {
    const ssize_t got = copy_file_range(from, nullptr, to, nullptr, size - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_from_errno("copy from the cache", errno);
    if (got == 0) return Error{Code::kDataLoss, "a file of the cache is shorter than it was"};
    done += static_cast<std::uint64_t>(got);
  }
  return {};
}

}  // namespace

struct ObjectCache::Wanted {
  std::string name;  // of the entry; empty: an object that cannot be cached
  fs::path entry;
  CacheFile file;
};

std::string ObjectCache::name_of(const std::string& bucket,
                                 const objects::ObjectInfo& object) const {
  // Without an ETag two versions look the same.
  if (object.etag.empty()) return {};
  std::string text;
  for (const std::string& part :
       {store_.name, bucket, object.key, object.etag, std::to_string(object.size)}) {
    text += part;
    text += '\0';
  }
  return sha256_hex(text);
}

fs::path ObjectCache::entry(const std::string& name) const {
  return folder_ / "objects" / name.substr(0, 2) / name;
}

Result<ObjectCache> ObjectCache::open(const fs::path& folder, std::uint64_t limit_bytes,
                                      CacheStore store, bool may_link) {
  TRY(check_cache(folder));
  TRY(make_folders(folder / "objects", 0700));
  TRY(drop_unsynced(folder));
  TRY(make_folders(folder / "claimed", 0700));
  std::vector<UniqueFd> claims;
  for (std::size_t i = 0; i < kClaimFiles; ++i) {
    claims.push_back(
        TRY(open_file(folder / "claimed" / fmt::format("{:02x}", i), O_RDWR | O_CREAT, 0600)));
  }
  return ObjectCache{folder, limit_bytes, std::move(store), may_link, std::move(claims)};
}

// A lock of one byte, at a place that the name gives; false when another holds it.
Result<bool> ObjectCache::set_claim(const Wanted& wanted, short type) const {
  std::uint64_t place = 0;
  std::from_chars(wanted.name.data(), wanted.name.data() + 15, place, 16);
  struct flock lock {};
  lock.l_type = type;
  lock.l_start = static_cast<off_t>(place / kClaimFiles);
  lock.l_len = 1;
  if (fcntl(claims_[place % kClaimFiles].get(), F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  return error_from_errno("lock an entry of the cache", errno);
}

// The entry as the job's file.
Result<void> ObjectCache::place(const Wanted& wanted) const {
  const fs::path& path = wanted.file.path;
  if (may_link_) {
    if (link(wanted.entry.c_str(), path.c_str()) == 0) return {};
    if (errno == ENOENT) return error_from_errno("link '" + wanted.entry.string() + "'", errno);
    // Too many links, another disk: a copy does as well.
    if (errno != EMLINK && errno != EXDEV && errno != EPERM) {
      return error_from_errno("link '" + path.string() + "'", errno);
    }
  }
  const UniqueFd from = TRY(open_file(wanted.entry, O_RDONLY));
  const UniqueFd to = TRY(open_file(path, O_WRONLY | O_CREAT | O_EXCL));
  return copy_bytes(from.get(), to.get(), wanted.file.object.size);
}

Result<bool> ObjectCache::take(const Wanted& wanted) const {
  struct stat info {};
  if (wanted.name.empty() || stat(wanted.entry.c_str(), &info) != 0) return false;
  if (static_cast<std::uint64_t>(info.st_size) != wanted.file.object.size) {
    unlink(wanted.entry.c_str());  // no download of ours leaves that
    return false;
  }
  if (info.st_atim.tv_sec + kUseSeconds < now_seconds()) {
    const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    utimensat(AT_FDCWD, wanted.entry.c_str(), times, 0);
  }
  const Result<void> placed = place(wanted);
  if (placed) return true;
  if (placed.error().code == Code::kNotFound) return false;  // evicted in this moment
  return placed.error();
}

// Evicts what was not used for longest, until `bytes` fit. `room` is false when they cannot.
Result<void> ObjectCache::make_room(std::uint64_t bytes, bool& room) const {
  room = bytes <= limit_bytes_;
  if (!room) return {};
  const UniqueFd lock = TRY(hold_eviction(folder_));
  remove_abandoned_parts(folder_);
  std::vector<Entry> entries = TRY(entries_in(folder_));
  std::uint64_t total = 0;
  for (const Entry& entry : entries) total += entry.bytes;
  std::uint64_t free = TRY(free_bytes(folder_));
  const std::uint64_t needed = may_link_ ? bytes : 2 * bytes;
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& entry : entries) {
    if (total + bytes <= limit_bytes_ && free >= needed) break;
    if (entry.linked || unlink(entry.path.c_str()) != 0) continue;
    total -= entry.bytes;
    free += entry.bytes;
  }
  room = total + bytes <= limit_bytes_ && free >= needed;
  return {};
}

namespace {

// What is downloaded at once.
template <typename Items, typename Size>
std::size_t batch_end(const Items& items, std::size_t begin, Size size_of) {
  std::uint64_t bytes = 0;
  std::size_t end = begin;
  while (end < items.size() && end - begin < kBatchFiles && bytes < kBatchBytes) {
    bytes += size_of(items[end++]);
  }
  return end;
}

Error stopped() { return Error{Code::kCancelled, "the download was stopped"}; }

}  // namespace

// One call of fill().
class CacheFill {
 public:
  using Wanted = ObjectCache::Wanted;
  CacheFill(const ObjectCache& cache, objects::ObjectStore& store, const std::string& bucket,
            const objects::Progress& progress, const std::function<bool()>& cancelled)
      : cache_(cache), store_(store), bucket_(bucket), progress_(progress), cancelled_(cancelled) {}

  Result<CacheReport> go(std::vector<Wanted> wanted) {
    for (const Wanted& each : wanted) total_ += each.file.object.size;
    std::vector<Wanted> missing = TRY(take_all(std::move(wanted)));
    std::uint64_t bytes = 0;
    for (const Wanted& each : missing) bytes += each.file.object.size;
    if (missing.empty()) return report_;
    bool room = false;
    TRY(cache_.make_room(bytes, room));
    TRY(room ? download_to_cache(std::move(missing)) : download_past_it(missing, bytes));
    return report_;
  }

 private:
  [[nodiscard]] bool is_cancelled() const { return cancelled_ && cancelled_(); }

  void done(std::uint64_t bytes) {
    const std::uint64_t now = done_ += bytes;
    if (progress_) progress_(now, total_);
  }

  // What is not in the cache.
  Result<std::vector<Wanted>> take_all(std::vector<Wanted> wanted) {
    std::vector<char> found(wanted.size(), 0);
    TRY(for_each_parallel(wanted.size(), kLinkThreads, [&](std::size_t i) -> Result<void> {
      if (is_cancelled()) return stopped();
      if (!TRY(cache_.take(wanted[i]))) return {};
      found[i] = 1;
      done(wanted[i].file.object.size);
      return {};
    }));
    std::vector<Wanted> missing;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (found[i] != 0) {
        ++report_.found;
      } else {
        missing.push_back(std::move(wanted[i]));
      }
    }
    return missing;
  }

  Result<void> download_to_cache(std::vector<Wanted> missing) {
    while (!missing.empty()) {
      std::vector<Wanted> of_others;
      bool mine = false;
      for (std::size_t begin = 0; begin < missing.size();) {
        if (is_cancelled()) return stopped();
        const std::size_t end =
            batch_end(missing, begin, [](const Wanted& wanted) { return wanted.file.object.size; });
        std::vector<Wanted> claimed;
        for (; begin < end; ++begin) {
          const bool is_mine =
              missing[begin].name.empty() || TRY(cache_.set_claim(missing[begin], F_WRLCK));
          (is_mine ? claimed : of_others).push_back(std::move(missing[begin]));
        }
        mine |= !claimed.empty();
        TRY(download_claimed(std::move(claimed)));
      }
      missing = std::move(of_others);
      // Somebody else downloads the rest: it is there, or can be claimed, when they are done.
      if (!mine && !missing.empty()) std::this_thread::sleep_for(kClaimPause);
    }
    return {};
  }

  Result<void> download_claimed(std::vector<Wanted> claimed) {
    const auto release = [&](const Wanted* wanted) {
      if (!wanted->name.empty()) (void)cache_.set_claim(*wanted, F_UNLCK);
    };
    std::vector<std::unique_ptr<const Wanted, decltype(release)>> held;
    for (const Wanted& wanted : claimed) held.emplace_back(&wanted, release);
    std::vector<objects::Download> downloads;
    std::vector<const Wanted*> placed;
    for (const Wanted& wanted : claimed) {
      // Another job may have finished it before this one claimed it.
      if (TRY(cache_.take(wanted))) {
        ++report_.found;
        done(wanted.file.object.size);
        continue;
      }
      const objects::ObjectInfo& object = wanted.file.object;
      downloads.push_back({object.key, object.size, object.etag,
                           wanted.name.empty() ? wanted.file.path : wanted.entry});
      if (!wanted.name.empty()) placed.push_back(&wanted);
    }
    TRY(download(std::move(downloads)));
    return for_each_parallel(placed.size(), kLinkThreads,
                             [&](std::size_t i) { return cache_.place(*placed[i]); });
  }

  Result<void> download_past_it(const std::vector<Wanted>& missing, std::uint64_t bytes) {
    const std::uint64_t free = TRY(free_bytes(missing.front().file.path.parent_path()));
    if (bytes > free) {
      return Error{
          Code::kResourceExhausted,
          fmt::format("{} bytes have to be downloaded, and the disk has {} free", bytes, free)};
    }
    for (std::size_t begin = 0; begin < missing.size();) {
      if (is_cancelled()) return stopped();
      const std::size_t end =
          batch_end(missing, begin, [](const Wanted& wanted) { return wanted.file.object.size; });
      std::vector<objects::Download> downloads;
      for (; begin < end; ++begin) {
        const objects::ObjectInfo& object = missing[begin].file.object;
        downloads.push_back({object.key, object.size, object.etag, missing[begin].file.path});
      }
      TRY(download(std::move(downloads)));
    }
    return {};
  }

  Result<void> download(std::vector<objects::Download> items) {
    if (items.empty()) return {};
    const std::uint64_t before = done_;
    std::uint64_t bytes = 0;
    for (const objects::Download& item : items) bytes += item.size;
    const std::size_t count = items.size();
    objects::Progress progress;
    if (progress_) {
      progress = [&](std::uint64_t now, std::uint64_t) { progress_(before + now, total_); };
    }
    TRY(store_.download_many(bucket_, std::move(items), progress));
    done_ = before + bytes;
    report_.downloaded += count;
    return {};
  }

  const ObjectCache& cache_;
  objects::ObjectStore& store_;
  const std::string& bucket_;
  const objects::Progress& progress_;
  const std::function<bool()>& cancelled_;
  std::uint64_t total_ = 0;
  std::atomic<std::uint64_t> done_ = 0;
  CacheReport report_;
};

Result<CacheReport> ObjectCache::fill(objects::ObjectStore& store, const std::string& bucket,
                                      std::vector<CacheFile> files,
                                      const objects::Progress& progress,
                                      const std::function<bool()>& cancelled) {
  std::vector<bool> readable(files.size(), true);
  if (store_.asks) {
    std::vector<std::string> keys;
    keys.reserve(files.size());
    for (const CacheFile& file : files) keys.push_back(file.object.key);
    readable = TRY(store.check_readable(bucket, keys));
  }
  std::vector<Wanted> wanted;
  wanted.reserve(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    CacheFile& file = files[i];
    std::string name = readable[i] ? name_of(bucket, file.object) : std::string{};
    fs::path place = name.empty() ? fs::path{} : entry(name);
    wanted.push_back({std::move(name), std::move(place), std::move(file)});
  }
  return CacheFill{*this, store, bucket, progress, cancelled}.go(std::move(wanted));
}

Result<void> ObjectCache::sync() {
  const std::int64_t begin = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
  if (syncfs(claims_.front().get()) != 0) return error_from_errno("syncfs", errno);
  const UniqueFd lock = TRY(hold_eviction(folder_));
  Boot boot = read_boot(folder_);
  boot.synced = std::max(boot.synced, begin);
  return write_boot(folder_, boot);
}

Result<CacheStatus> ObjectCache::status(const fs::path& folder) {
  CacheStatus status;
  TRY(check_cache(folder));
  for (const Entry& entry : TRY(entries_in(folder))) {
    ++status.files;
    status.bytes += entry.bytes;
    if (!entry.linked) continue;
    ++status.linked_files;
    status.linked_bytes += entry.bytes;
  }
  return status;
}

Result<std::uint64_t> ObjectCache::clear(const fs::path& folder) {
  std::uint64_t freed = 0;
  if (!fs::exists(folder)) return freed;
  TRY(check_cache(folder));
  const UniqueFd lock = TRY(hold_eviction(folder));
  remove_abandoned_parts(folder);
  for (const Entry& entry : TRY(entries_in(folder))) {
    if (!entry.linked && unlink(entry.path.c_str()) == 0) freed += entry.bytes;
  }
  return freed;
}

}  // namespace atelier::channels
