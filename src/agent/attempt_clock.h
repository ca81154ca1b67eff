// How long an attempt has run by a clock that does not jump and that stands still while the host is
// down: kept in the job's folder every few seconds, so that the successor of an agent that was
// killed knows it, give or take one interval.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/result.h"

namespace atelier::agent {

class AttemptClock {
 public:
  // Starts at `begin`, which an earlier agent of the attempt has reached. The time is written over
  // in its place, without waiting for the disk: after a power cut it may be missing, or old.
  static Result<std::unique_ptr<AttemptClock>> start(const std::filesystem::path& job_folder,
                                                     int attempt, std::chrono::milliseconds begin);
  ~AttemptClock();
  AttemptClock(const AttemptClock&) = delete;
  AttemptClock& operator=(const AttemptClock&) = delete;

  [[nodiscard]] std::chrono::milliseconds elapsed() const;
  // What an agent of the attempt that is gone has left; absent where none has begun it.
  static std::optional<std::chrono::milliseconds> read(const std::filesystem::path& job_folder,
                                                       int attempt);
  static void remove(const std::filesystem::path& job_folder);

 private:
  AttemptClock(UniqueFd fd, int attempt, std::chrono::milliseconds begin);
  Result<void> write() const;
  void loop();

  const UniqueFd fd_;
  const int attempt_;
  const std::chrono::steady_clock::time_point began_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace atelier::agent
