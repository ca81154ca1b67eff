#include "jobs/logs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace atelier::jobs {
namespace {

Time at(int milliseconds) { return from_epoch_milliseconds(1'796'022'000'000 + milliseconds); }

class LogsTest : public ::testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::create();
  std::filesystem::path path_ = folder_.path() / "log";

  // Lines 0, 1, 2 ... of 10 ms each; two of every moment.
  void write(int count, const std::string& text = "line") {
    auto log = *agent::LogWriter::open(path_);
    for (int i = 0; i < count; ++i) log.append(at(i / 2 * 10), fmt::format("{} {}", text, i));
    ASSERT_TRUE(log.flush());
  }
  std::vector<std::string> read(const LogQuery& query) {
    const auto page = read_log_page(path_, query);
    EXPECT_TRUE(page);
    std::vector<std::string> lines;
    for (const auto& event : page->events) lines.push_back(event.message);
    return lines;
  }
};

using Lines = std::vector<std::string>;

TEST_F(LogsTest, WithoutATokenTheEndIsShownAndFromTheHeadTheStart) {
  write(6);
  EXPECT_EQ(read({.limit = 2}), (Lines{"line 4", "line 5"}));
  EXPECT_EQ(read({.limit = 2, .from_head = true}), (Lines{"line 0", "line 1"}));
}

TEST_F(LogsTest, AStartIsInclusiveAndAnEndIsNot) {
  write(6);  // at 0, 0, 10, 10, 20, 20
  EXPECT_EQ(read({.start = at(10), .end = at(20), .from_head = true}), (Lines{"line 2", "line 3"}));
  EXPECT_EQ(read({.start = at(10), .end = at(20)}), (Lines{"line 2", "line 3"}));
  EXPECT_EQ(read({.start = at(21), .from_head = true}), Lines{});
  EXPECT_EQ(read({.end = at(0)}), Lines{});
}

TEST_F(LogsTest, EveryEventComesOnceWhicheverWayThePagesGo) {
  write(25);
  for (const bool forward : {true, false}) {
    Lines all;
    LogQuery query{.limit = 4, .from_head = forward};
    while (true) {
      const LogQueryPage page = *read_log_page(path_, query);
      if (page.events.empty()) {
        EXPECT_EQ(forward ? page.next_forward_token : page.next_backward_token, query.token);
        break;
      }
      Lines lines;
      for (const auto& event : page.events) lines.push_back(event.message);
      all.insert(forward ? all.end() : all.begin(), lines.begin(), lines.end());
      query.token = forward ? page.next_forward_token : page.next_backward_token;
    }
    ASSERT_EQ(all.size(), 25u);
    for (int i = 0; i < 25; ++i)
      EXPECT_EQ(all[static_cast<std::size_t>(i)], fmt::format("line {}", i));
  }
}

TEST_F(LogsTest, AForwardTokenAtTheEndFindsWhatIsWrittenLater) {
  write(2);
  LogQuery query{.from_head = true};
  query.token = read_log_page(path_, query)->next_forward_token;
  EXPECT_EQ(read(query), Lines{});
  write(1, "later");
  EXPECT_EQ(read(query), Lines{"later 0"});
}

TEST_F(LogsTest, ATokenStaysInsideTheSpanOfTime) {
  write(6);
  EXPECT_EQ(read({.start = at(10), .token = "f/0"}),
            (Lines{"line 2", "line 3", "line 4", "line 5"}));
  EXPECT_EQ(read({.start = at(10), .end = at(20), .token = "b/999999"}),
            (Lines{"line 2", "line 3"}));
}

TEST_F(LogsTest, APageIsBoundedInEventsAndBytes) {
  write(30, std::string(100'000, 'x'));
  EXPECT_EQ(read({.from_head = true}).size(), 9u) << "1 MB";
  EXPECT_EQ(read({}).size(), 9u);
  write(0);
  std::filesystem::remove(path_);
  write(10'100);
  EXPECT_EQ(read({.limit = 1'000'000, .from_head = true}).size(), 10'000u);
}

TEST_F(LogsTest, AForgedTokenIsRefusedOrHarmless) {
  write(3);
  for (const char* token : {"f", "f/", "x/3", "f/-1", "f/1x", "b/99999999999999999999999"}) {
    EXPECT_EQ(read_log_page(path_, {.token = token}).error().code, Code::kInvalidArgument) << token;
  }
  EXPECT_EQ(read({.token = "f/18446744073709551615"}), Lines{});
}

TEST_F(LogsTest, ALogThatIsNotThereHasNoEvents) { EXPECT_EQ(read({.from_head = true}), Lines{}); }

}  // namespace
}  // namespace atelier::jobs
