#include "agent/volume_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string_view>

#include "agent/warm_folder.h"
#include "base/file.h"

namespace atelier::agent {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::seconds kInterval{5};
constexpr std::chrono::seconds kAgain{1};
// A look at a million files takes seconds: a hundredth of one CPU at most.
constexpr int kRest = 100;
// Each level holds a descriptor.
constexpr int kMaxDepth = 300;
constexpr std::uint64_t kBlock = 4096;

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

std::uint64_t size_on_disk(const struct stat& info) {
  return std::max(static_cast<std::uint64_t>(info.st_blocks) * 512, kBlock);
}

std::uint64_t use_below(UniqueFd folder, int depth) {
  const int fd = folder.get();
  const std::unique_ptr<DIR, CloseDir> entries{fdopendir(folder.release())};
  if (!entries || depth > kMaxDepth) return 0;
  std::uint64_t bytes = 0;
  while (const dirent* entry = readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    struct stat info {};
    if (name == "." || name == ".." ||
        fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    bytes += size_on_disk(info);
    if (!S_ISDIR(info.st_mode)) continue;
    UniqueFd inner{openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (inner) bytes += use_below(std::move(inner), depth + 1);
  }
  return bytes;
}

std::uint64_t use_of(const std::vector<std::filesystem::path>& folders) {
  std::uint64_t bytes = 0;
  for (const auto& folder : folders) bytes += disk_use(folder);
  return bytes;
}

}  // namespace

std::uint64_t disk_use(const std::filesystem::path& folder) {
  Result<UniqueFd> fd = open_file(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (fd) return use_below(*std::move(fd), 0);
  struct stat info {};
  return lstat(folder.c_str(), &info) == 0 ? size_on_disk(info) : 0;
}

Error Bound::error(const std::string& file, std::uint64_t size) const {
  return Error{
      Code::kResourceExhausted,
      fmt::format("'{}' has {} bytes: {} of {} bytes, and what is uploaded may not be larger than "
                  "that; a file with holes counts as if it had none, so write it without, or {}",
                  file, size,
                  volume_gib > 0 ? fmt::format("VolumeSizeInGB is {}, a limit", volume_gib)
                                 : std::string{"the disk has a size"},
                  bytes,
                  volume_gib > 0 ? "ask for a larger volume" : "name a VolumeSizeInGB that fits")};
}

Result<Bound> largest_copy(const AgentSpec& spec, const std::filesystem::path& job_folder) {
  if (spec.volume_gib > 0) {
    return Bound{static_cast<std::uint64_t>(spec.volume_gib) << 30, spec.volume_gib};
  }
  struct statvfs info {};
  if (statvfs(job_folder.c_str(), &info) != 0) {
    return error_from_errno("statvfs '" + job_folder.string() + "'", errno);
  }
  return Bound{std::uint64_t{info.f_blocks} * info.f_frsize, 0};
}

std::string beyond_volume_words(std::uint64_t written, const AgentSpec& spec) {
  const auto gib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  std::string words = fmt::format(
      "the program wrote {:.1f} GiB to /opt/ml, /tmp, its checkpoints and its log, more than its "
      "VolumeSizeInGB of {}; ask for a larger volume",
      gib(written), spec.volume_gib);
  const std::uint64_t in_pool = use_of(warm_folders(spec));
  if (spec.warm_pool.empty() || gib(in_pool) < 0.05) return words;
  const std::string pool = std::filesystem::path{spec.warm_pool}.filename().string();
  return words + fmt::format(
                     ", or keep less in the warm pool: {:.1f} GiB of it are in the pool of job "
                     "'{}' (/opt/ml/sagemaker/warmpoolcache and the packages), which ends with "
                     "this job",
                     gib(in_pool), pool.substr(0, pool.rfind('.')));
}

VolumeWatch::VolumeWatch(std::vector<std::filesystem::path> folders,
                         std::vector<std::filesystem::path> whole, std::uint64_t limit,
                         std::function<bool()> exceeded)
    : folders_(std::move(folders)),
      whole_(std::move(whole)),
      limit_(limit),
      exceeded_(std::move(exceeded)) {
  if (limit_ > 0) thread_ = std::thread([this] { loop(); });
}

VolumeWatch::~VolumeWatch() {
  {
    const std::scoped_lock lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void VolumeWatch::loop() {
  auto began = Steady::now();
  const std::uint64_t before = use_of(folders_);
  std::unique_lock lock(mutex_);
  while (true) {
    const auto took = Steady::now() - began;
    const auto rest = std::max<Steady::duration>(kInterval, kRest * took);
    if (wake_.wait_for(lock, rest, [this] { return leaving_; })) return;
    lock.unlock();
    began = Steady::now();
    const std::uint64_t now = use_of(folders_) + use_of(whole_);
    lock.lock();
    if (now <= before || now - before <= limit_) continue;
    over_ = now - before;
    while (!exceeded_()) {
      if (wake_.wait_for(lock, kAgain, [this] { return leaving_; })) return;
    }
    return;
  }
}

}  // namespace atelier::agent
