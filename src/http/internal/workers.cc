#include "http/internal/workers.h"

#include <algorithm>

namespace atelier::http::internal {

Workers::Workers(unsigned threads) {
  for (unsigned i = 0; i < std::max(1u, threads); ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() {
  join();
  shutdown();
  destroy();
}

void Workers::join() {
  {
    const std::lock_guard lock{mutex_};
    ending_ = true;
  }
  there_is_more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool Workers::wakes_one() {
  if (tasks_.empty() || asleep_ == 0 || waking_) return false;
  waking_ = true;
  return true;
}

void Workers::post(std::unique_ptr<Task> task) {
  bool wakes = false;
  {
    const std::lock_guard lock{mutex_};
    tasks_.push_back(std::move(task));
    wakes = wakes_one();
  }
  if (wakes) there_is_more_.notify_one();
}

void Workers::run() {
  std::unique_lock lock{mutex_};
  while (true) {
    if (!tasks_.empty()) {
      std::unique_ptr<Task> task = std::move(tasks_.front());
      tasks_.pop_front();
      const bool wakes = wakes_one();
      lock.unlock();
      if (wakes) there_is_more_.notify_one();
      task->run();
      task.reset();
      lock.lock();
    } else if (ending_) {
      return;
    } else {
      ++asleep_;
      there_is_more_.wait(lock);
      --asleep_;
      waking_ = false;  // it has come, also where another has taken the task meanwhile
    }
  }
}

}  // namespace atelier::http::internal
