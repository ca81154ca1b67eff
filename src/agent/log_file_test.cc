#include "agent/log_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/file.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kAll = SIZE_MAX;
constexpr std::uint64_t kEnd = UINT64_MAX;

Time at(std::int64_t milliseconds) { return from_epoch_milliseconds(milliseconds); }

class LogFileTest : public testing::Test {
 protected:
  TempFolder folder_ = TempFolder::create().value();
  std::filesystem::path path_ = folder_.path() / "algo-1.log";

  void write(const std::vector<std::pair<std::int64_t, std::string>>& lines) {
    LogWriter writer = LogWriter::open(path_).value();
    for (const auto& [time, line] : lines) writer.append(at(time), line);
    writer.flush().value();
  }
  std::vector<std::string> messages() {
    std::vector<std::string> all;
    const LogPage page = read_log(path_, 0, kAll, kAll).value();
    for (const LogEvent& event : page.events) all.push_back(event.message);
    return all;
  }
};

TEST_F(LogFileTest, AFileThatIsNotThereHasNoEvents) {
  EXPECT_TRUE(read_log(path_, 0, 10, 1000)->events.empty());
  EXPECT_TRUE(read_log_backward(path_, kEnd, 10, 1000)->events.empty());
  EXPECT_EQ(*seek_log(path_, at(5)), 0U);
}

TEST_F(LogFileTest, LinesComeBackWithTimeAndBytesUnchanged) {
  const std::string binary{"\xff\x00\r\xc3(", 5};
  write({{1000, "first"}, {1001, ""}, {1001, binary}});
  const LogPage page = read_log(path_, 0, 10, 1000).value();
  ASSERT_EQ(page.events.size(), 3U);
  EXPECT_EQ(page.events[0].message, "first");
  EXPECT_EQ(page.events[0].time, at(1000));
  EXPECT_EQ(page.events[1].message, "");
  EXPECT_EQ(page.events[2].message, binary);
}

TEST_F(LogFileTest, ATimeNeverGoesBackAlsoAcrossWriters) {
  write({{2000, "a"}, {1500, "clock jumped"}});
  write({{1000, "after a restart"}, {3000, "b"}});
  const LogPage page = read_log(path_, 0, 10, 1000).value();
  EXPECT_EQ(page.events[1].time, at(2000));
  EXPECT_EQ(page.events[2].time, at(2000));
  EXPECT_EQ(page.events[3].time, at(3000));
}

TEST_F(LogFileTest, ATornRecordIsNotReadAndIsCutOffByTheNextWriter) {
  write({{1000, "whole"}});
  std::ofstream{path_, std::ios::app} << "0000000001001 to";
  EXPECT_EQ(messages(), std::vector<std::string>{"whole"});
  write({{1002, "next"}});
  EXPECT_EQ(messages(), (std::vector<std::string>{"whole", "next"}));
}

TEST_F(LogFileTest, ADamagedRecordIsPassedOver) {
  write({{1000, "a"}});
  std::ofstream{path_, std::ios::app} << std::string(300, '\0') << "\nno time here\n";
  write({{1002, "b"}});
  EXPECT_EQ(messages(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read_log_backward(path_, kEnd, 2, kAll)->events.front().message, "a");
  const LogPage page = read_log(path_, *seek_log(path_, at(1001)), 1, kAll).value();
  EXPECT_EQ(page.events[0].message, "b");
}

TEST_F(LogFileTest, ALongLineIsCutIntoRecordsThatTogetherAreTheLine) {
  std::string line(std::size_t{700} << 10, 'x');
  line.back() = 'y';
  write({{1000, line}});
  const LogPage page = read_log(path_, 0, kAll, kAll).value();
  ASSERT_EQ(page.events.size(), 3U);
  EXPECT_EQ(page.events[0].message.size(), std::size_t{256} << 10);
  EXPECT_EQ(page.events[0].message + page.events[1].message + page.events[2].message, line);
}

TEST_F(LogFileTest, APageIsBoundedInBytesButAlwaysHasOneEvent) {
  write({{1000, std::string(500, 'a')}, {1000, "b"}, {1000, "c"}});
  EXPECT_EQ(read_log(path_, 0, kAll, 10)->events.size(), 1U);
  EXPECT_EQ(read_log_backward(path_, kEnd, kAll, 100)->events.size(), 2U);
  EXPECT_EQ(read_log_backward(path_, kEnd, kAll, 1)->events.size(), 1U);
}

TEST_F(LogFileTest, AForgedPositionIsMovedToARecord) {
  write({{1000, "aaaa"}, {1001, "bbbb"}});
  EXPECT_EQ(read_log(path_, 3, 1, kAll)->events[0].message, "bbbb");
  EXPECT_TRUE(read_log(path_, 1 << 20, 1, kAll)->events.empty());
  EXPECT_EQ(read_log_backward(path_, 25, 1, kAll)->events[0].message, "aaaa");
}

// A limit on the size of files stands for a full disk: a write is cut short in the middle of a
// line.
TEST_F(LogFileTest, WhatAFullDiskCutShortIsWrittenWholeOnceThereIsRoom) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  LogWriter writer = LogWriter::open(path_).value();
  writer.append(at(1), "first line");
  writer.append(at(2), "second line");
  const rlimit tight{30, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  const bool fitted = writer.flush().has_value();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(fitted);
  EXPECT_EQ(messages(), std::vector<std::string>{"first line"});
  writer.append(at(3), "third line");
  writer.flush().value();
  EXPECT_EQ(messages(), (std::vector<std::string>{"first line", "second line", "third line"}));
}

TEST_F(LogFileTest, AReaderBesideTheWriterSeesOnlyWholeRecordsInOrder) {
  std::atomic<bool> done{false};
  std::thread writer_thread{[&] {
    LogWriter writer = LogWriter::open(path_).value();
    for (int i = 0; i < 20000; ++i) {
      writer.append(at(i), "line " + std::to_string(i) + std::string(i % 97, '.'));
      if (i % 7 == 0) writer.flush().value();
    }
    writer.flush().value();
    done = true;
  }};
  std::uint64_t offset = 0;
  int next = 0;
  while (true) {
    const bool last_round = done;
    const LogPage page = read_log(path_, offset, kAll, kAll).value();
    for (const LogEvent& event : page.events) {
      ASSERT_EQ(event.message, "line " + std::to_string(next) + std::string(next % 97, '.'));
      ++next;
    }
    offset = page.next_offset;
    if (last_round) break;
  }
  writer_thread.join();
  EXPECT_EQ(next, 20000);
}

// The model: a vector of (time, message). Whatever is written, every way of reading agrees with it.
TEST_F(LogFileTest, EveryWayOfReadingAgreesWithAVectorOfEvents) {
  EXPECT_TRUE(rc::check("log file and vector", [this] {
    std::filesystem::remove(path_);
    std::vector<std::pair<std::int64_t, std::string>> model;
    const int batches = *rc::gen::inRange(1, 5);
    std::int64_t now = 0;
    for (int batch = 0; batch < batches; ++batch) {
      LogWriter writer = LogWriter::open(path_).value();
      const int lines = *rc::gen::inRange(0, 60);
      for (int i = 0; i < lines; ++i) {
        now += *rc::gen::weightedElement<std::int64_t>({{3, 0}, {3, 1}, {1, 1000}});
        std::string line = *rc::gen::container<std::string>(
            rc::gen::suchThat(rc::gen::arbitrary<char>(), [](char c) { return c != '\n'; }));
        if (*rc::gen::inRange(0, 20) == 0) line += std::string(70000, 'z');
        writer.append(at(now), line);
        model.emplace_back(now, line);
      }
      writer.flush().value();
      if (*rc::gen::inRange(0, 2) == 0) std::ofstream{path_, std::ios::app} << "00000 torn";
    }
    const auto equal = [&](const LogEvent& event, std::size_t index) {
      RC_ASSERT(event.time == at(model[index].first));
      RC_ASSERT(event.message == model[index].second);
    };
    std::vector<std::uint64_t> offsets;
    std::uint64_t offset = 0;
    while (true) {
      const LogPage page =
          read_log(path_, offset, static_cast<std::size_t>(*rc::gen::inRange(1, 9)),
                   static_cast<std::size_t>(*rc::gen::inRange(0, 100000)))
              .value();
      if (page.events.empty()) break;
      RC_ASSERT(page.previous_offset == page.events.front().offset);
      for (const LogEvent& event : page.events) {
        RC_ASSERT(offsets.size() < model.size());
        equal(event, offsets.size());
        offsets.push_back(event.offset);
      }
      offset = page.next_offset;
    }
    RC_ASSERT(offsets.size() == model.size());
    std::size_t left = model.size();
    offset = kEnd;
    while (left > 0) {
      const LogPage page =
          read_log_backward(path_, offset, static_cast<std::size_t>(*rc::gen::inRange(1, 9)), kAll)
              .value();
      RC_ASSERT(!page.events.empty() && page.events.size() <= left);
      left -= page.events.size();
      for (std::size_t i = 0; i < page.events.size(); ++i) equal(page.events[i], left + i);
      offset = page.previous_offset;
    }
    const std::int64_t wanted = *rc::gen::inRange<std::int64_t>(0, now + 2);
    const auto first = std::find_if(model.begin(), model.end(),
                                    [&](const auto& line) { return line.first >= wanted; });
    const std::uint64_t found = seek_log(path_, at(wanted)).value();
    if (first == model.end()) {
      RC_ASSERT(read_log(path_, found, 1, kAll)->events.empty());
    } else {
      RC_ASSERT(found == offsets[static_cast<std::size_t>(first - model.begin())]);
    }
  }));
}

}  // namespace
}  // namespace atelier::agent
