#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace atelier {

Result<void> for_each_parallel(std::size_t count, std::size_t threads,
                               const std::function<Result<void>(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  Result<void> outcome;
  const auto run = [&] {
    while (true) {
      const std::size_t i = next.fetch_add(1);
      if (i >= count) return;
      Result<void> done = work(i);
      if (done) continue;
      const std::lock_guard lock{mutex};
      if (outcome) outcome = std::move(done);
      next = count;
    }
  };
  std::vector<std::thread> pool;
  try {
    for (std::size_t i = 1; i < std::min(threads, count); ++i) pool.emplace_back(run);
  } catch (const std::system_error&) {
    // The host gives no more threads: those that came do all of it.
  }
  run();
  for (std::thread& thread : pool) thread.join();
  return outcome;
}

}  // namespace atelier
