#include "http/internal/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <latch>
#include <set>

namespace atelier::http::internal {
namespace {

namespace asio = boost::asio;

TEST(Workers, RunEveryTaskOnceWhoeverPostsIt) {
  std::atomic<int> ran = 0;
  {
    Workers workers{4};
    std::vector<std::thread> posters;
    for (int poster = 0; poster < 4; ++poster) {
      posters.emplace_back([&] {
        for (int i = 0; i < 5000; ++i) asio::post(workers.executor(), [&] { ++ran; });
      });
    }
    for (std::thread& poster : posters) poster.join();
    workers.join();
    EXPECT_EQ(ran, 20000);
  }
}

TEST(Workers, ATaskNeverWaitsWhileAThreadSleeps) {
  for (int round = 0; round < 200; ++round) {
    Workers workers{3};
    std::latch all_run{3};  // ends only if three threads run at a time
    for (int i = 0; i < 3; ++i) {
      asio::post(workers.executor(), [&] { all_run.arrive_and_wait(); });
    }
    all_run.wait();
  }
}

TEST(Workers, RunWhatTasksPostWhileTheyEnd) {
  std::atomic<int> ran = 0;
  Workers workers{2};
  const std::function<void(int)> go_on = [&](int left) {
    ++ran;
    if (left > 0) asio::post(workers.executor(), [&, left] { go_on(left - 1); });
  };
  asio::post(workers.executor(), [&] { go_on(99); });
  workers.join();
  EXPECT_EQ(ran, 100);
}

asio::awaitable<int> count_to(int end, std::set<std::thread::id>& threads) {
  int count = 0;
  while (count < end) {
    co_await asio::post(asio::use_awaitable);
    threads.insert(std::this_thread::get_id());
    ++count;
  }
  co_return count;
}

TEST(Workers, CarryCoroutines) {
  Workers workers{2};
  std::set<std::thread::id> threads;
  std::future<int> end = asio::co_spawn(asio::any_io_executor{workers.executor()},
                                        count_to(50, threads), asio::use_future);
  EXPECT_EQ(end.get(), 50);
  workers.join();
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

}  // namespace
}  // namespace atelier::http::internal
