// VolumeSizeInGB on a host without disk quotas for a folder: what a program has written is measured
// now and then, and one that goes beyond is ended. A program that is fast can pass the limit by
// what it writes between two looks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/spec.h"
#include "base/result.h"

namespace atelier::agent {

// Bytes on disk of all that is below the folder, or of a file; links are not followed, and what
// cannot be looked at counts nothing. Each name counts a block at least: a disk that is full of
// empty files is full.
std::uint64_t disk_use(const std::filesystem::path& folder);

// How much of what an instance has written may go to S3: VolumeSizeInGB, else what its disk could
// ever hold. Files with holes are larger than what they take.
struct Bound {
  std::uint64_t bytes = 0;
  int volume_gib = 0;
  // That a file is beyond it, alone or with those before it.
  [[nodiscard]] Error error(const std::string& file, std::uint64_t size) const;
};
Result<Bound> largest_copy(const AgentSpec& spec, const std::filesystem::path& job_folder);

// Why a program was ended that had `written` bytes, where they are, and what to do: a warm pool
// counts with all that the jobs before it have left there.
std::string beyond_volume_words(std::uint64_t written, const AgentSpec& spec);

// From its start on, in a thread of its own; what is in `folders` then does not count, while all
// that is in `whole` does (a warm pool must not grow by a volume with each job).
class VolumeWatch {
 public:
  // `exceeded` is called from the thread, and again each second as long as it gives false (a full
  // disk may be why). A limit of 0 watches nothing.
  VolumeWatch(std::vector<std::filesystem::path> folders, std::vector<std::filesystem::path> whole,
              std::uint64_t limit, std::function<bool()> exceeded);
  ~VolumeWatch();
  VolumeWatch(const VolumeWatch&) = delete;
  VolumeWatch& operator=(const VolumeWatch&) = delete;

  // What counted when the limit was passed; 0 as long as it was not.
  [[nodiscard]] std::uint64_t over() const { return over_; }

 private:
  void loop();

  const std::vector<std::filesystem::path> folders_;
  const std::vector<std::filesystem::path> whole_;
  const std::uint64_t limit_;
  const std::function<bool()> exceeded_;
  std::atomic<std::uint64_t> over_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace atelier::agent
