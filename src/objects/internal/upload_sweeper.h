// Gives up multipart uploads that nobody completes, in the background.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/result.h"
#include "base/time.h"
#include "objects/local_store.h"

namespace atelier::objects::internal {

// Aborts the uploads that are older than their bucket's lifecycle document says, or than `usual` in
// a bucket without one. Every abort is a transaction of its own, so that the sweep may be cut short
// and repeated at any time. Returns how many it aborted.
Result<std::size_t> sweep_uploads(LocalStore& store, Time now, std::chrono::days usual,
                                  const std::stop_token& stop);

// Sweeps every `period`, on a thread of its own that ends with this; and gives room in the index
// back to the disk.
class UploadSweeper {
 public:
  UploadSweeper(LocalStore& store, const Clock& clock, std::chrono::days usual,
                std::chrono::seconds period);

 private:
  void run(const std::stop_token& stop);
  void sweep(const std::stop_token& stop);

  LocalStore& store_;
  const Clock& clock_;
  const std::chrono::days usual_;
  const std::chrono::seconds period_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it uses what is above
};

}  // namespace atelier::objects::internal
