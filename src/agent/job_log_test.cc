#include "agent/job_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "base/file.h"
#include "base/json.h"

namespace atelier::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// Each look at it is a millisecond later, unless it is set.
class TickingClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override { return from_epoch_milliseconds(++now_); }
  [[nodiscard]] std::chrono::steady_clock::time_point steady() const override { return {}; }
  void set(std::int64_t milliseconds) { now_ = milliseconds; }

 private:
  mutable std::int64_t now_ = 1'800'000'000'000;
};

struct Sample {
  std::int64_t time = 0;
  double value = 0;
  friend bool operator==(const Sample&, const Sample&) = default;
  friend void PrintTo(const Sample& sample, std::ostream* out) {
    *out << sample.value << " at " << sample.time;
  }
};

class JobLogTest : public testing::Test {
 protected:
  std::unique_ptr<JobLog> open() {
    return JobLog::open(folder_.path(), "algo-1", {{"loss", "loss=([0-9.]+)"}}, clock_).value();
  }
  // Of each line of the log: its time, and the number in it.
  std::vector<Sample> lines() {
    std::vector<Sample> all;
    const LogPage page =
        read_log(folder_.path() / "logs/algo-1.log", 0, SIZE_MAX, SIZE_MAX).value();
    for (const LogEvent& event : page.events) {
      all.push_back({to_epoch_milliseconds(event.time), std::stod(event.message.substr(5))});
    }
    return all;
  }
  std::vector<Sample> metrics() {
    std::vector<Sample> all;
    std::ifstream file{folder_.path() / "metrics.jsonl"};
    for (std::string text; std::getline(file, text);) {
      const Result<json::value> line = parse_json(text);
      if (!line) {
        ADD_FAILURE() << "no metric: " << text;
        continue;
      }
      all.push_back({find_int(*line, "t").value(), find_number(*line, "v").value()});
    }
    return all;
  }

  TempFolder folder_ = TempFolder::create().value();
  TickingClock clock_;
};

TEST_F(JobLogTest, AMetricHasTheTimeOfItsLineAlsoWhenTheClockGoesBack) {
  const auto log = open();
  log->program_line("loss=1");
  log->program_line("loss=2");
  clock_.set(1'700'000'000'000);
  log->program_line("loss=3");
  log->flush();
  ASSERT_THAT(lines(), SizeIs(3));
  EXPECT_EQ(metrics(), lines());
}

TEST_F(JobLogTest, ATornMetricIsCutOffByTheNextWriter) {
  open()->program_line("loss=0");  // never flushed, as by a kill
  std::ofstream{folder_.path() / "metrics.jsonl"} << R"({"t":5,"n":"loss","v":1})" << '\n'
                                                  << R"({"t":6,"n":"lo)";
  const auto log = open();
  log->program_line("loss=2");
  log->flush();
  ASSERT_THAT(metrics(), SizeIs(2));
  EXPECT_EQ(metrics()[0], (Sample{5, 1}));
  EXPECT_EQ(metrics()[1].value, 2);
}

// A limit on the size of files stands for a full disk: a write is cut short in the middle of a
// line.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : ignored_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit tight{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tight);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, ignored_);
  }

 private:
  rlimit before_{};
  void (*ignored_)(int);
};

TEST_F(JobLogTest, LinesAndMetricsThatAFullDiskCutShortAreWrittenOnceThereIsRoom) {
  const auto log = open();
  for (int i = 0; i < 100; ++i) {
    const FullDisk full(1000);  // room for some lines, and for fewer metrics
    log->program_line("loss=" + std::to_string(i));
    log->flush();
    if (i == 99) {
      EXPECT_THAT(log->problem(), HasSubstr("may be missing"));
    }
  }
  log->program_line("loss=100");
  log->sync();
  EXPECT_EQ(log->problem(), "");
  EXPECT_EQ(metrics(), lines());
  ASSERT_THAT(metrics(), SizeIs(101));
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(metrics()[static_cast<std::size_t>(i)].value, i);
}

TEST_F(JobLogTest, WhatDoesNotFitIntoMemoryEitherIsCountedAndSaid) {
  const auto log = open();
  const std::string longest(std::size_t{1} << 20, 'x');
  {
    const FullDisk full(0);
    for (int i = 0; i < 20; ++i) {
      log->program_line("loss=" + std::to_string(i) + longest);
      log->flush();
    }
  }
  log->program_line("loss=20");
  log->flush();
  EXPECT_THAT(log->problem(), HasSubstr("lines and their metrics are missing in the log"));
  EXPECT_THAT(log->problem(), HasSubstr("more than 8 MiB waited for room on the disk"));
  std::vector<double> kept;
  for (const Sample& metric : metrics()) kept.push_back(metric.value);
  EXPECT_THAT(kept, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 20));
  EXPECT_EQ(log->final_metrics().at("loss"), 20);
}

}  // namespace
}  // namespace atelier::agent
