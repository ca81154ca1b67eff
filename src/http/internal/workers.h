// Threads that run tasks which may block, and an executor for coroutines on them.
//
// Unlike asio's thread_pool it wakes one thread at a time: while a woken one is on its way no other
// is woken, and the one that arrives wakes the next if there is more to do. Of requests that come
// together most are then taken by threads that are awake already, where each would have cost two
// context switches; a task still never waits while a thread sleeps.
#pragma once

#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace atelier::http::internal {

class Workers : public boost::asio::execution_context {
 public:
  explicit Workers(unsigned threads);
  ~Workers();

  // Runs what was posted, and what that posts, then ends the threads.
  void join();

  class Executor;
  [[nodiscard]] Executor executor();

 private:
  struct Task {
    virtual ~Task() = default;
    virtual void run() = 0;
  };
  template <typename Function>
  struct TaskOf final : Task {
    explicit TaskOf(Function given) : function(std::move(given)) {}
    void run() override { std::move(function)(); }
    Function function;
  };

  void post(std::unique_ptr<Task> task);
  void run();
  // Under mutex_: whether a thread is to be woken, who counts as on its way from now on.
  bool wakes_one();

  std::mutex mutex_;  // guards what follows
  std::condition_variable there_is_more_;
  std::deque<std::unique_ptr<Task>> tasks_;
  std::size_t asleep_ = 0;
  // At each release of the mutex: set if there are tasks and somebody sleeps.
  bool waking_ = false;
  bool ending_ = false;

  std::vector<std::thread> threads_;
};

// As asio's executors: a value, and what runs by it never runs inside of the call.
class Workers::Executor {
 public:
  explicit Executor(Workers& workers) : workers_(&workers) {}

  template <typename Function>
  void execute(Function function) const {
    workers_->post(std::make_unique<TaskOf<Function>>(std::move(function)));
  }
  [[nodiscard]] Workers& query(boost::asio::execution::context_t /*what*/) const {
    return *workers_;
  }
  static constexpr boost::asio::execution::blocking_t query(
      boost::asio::execution::blocking_t /*what*/) {
    return boost::asio::execution::blocking.never;
  }
  [[nodiscard]] Executor require(boost::asio::execution::blocking_t::never_t /*how*/) const {
    return *this;
  }
  bool operator==(const Executor&) const = default;

 private:
  Workers* workers_;
};

inline Workers::Executor Workers::executor() { return Executor{*this}; }

}  // namespace atelier::http::internal
