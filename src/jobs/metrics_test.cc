#include "jobs/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace atelier::jobs {
namespace {

Time at(int seconds) { return from_epoch_milliseconds(1'796'022'000'000 + seconds * 1000); }

std::string line(const char* name, double value, int seconds) {
  return fmt::format(R"({{"t":{},"n":"{}","v":{}}})", to_epoch_milliseconds(at(seconds)), name,
                     value) +
         "\n";
}

class MetricsTest : public ::testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::create();
  std::vector<FinalMetric> complete(const std::string& text, std::vector<FinalMetric> metrics) {
    EXPECT_TRUE(write_file_durably(folder_.path() / "metrics.jsonl", text));
    complete_metrics(folder_.path(), metrics);
    return metrics;
  }
};

TEST_F(MetricsTest, TheLastValueOfEachCounts) {
  const auto metrics = complete(line("loss", 2, 1) + line("acc", 0.5, 1) + line("loss", 1, 2), {});
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].name, "loss");
  EXPECT_EQ(metrics[0].value, 1);
  EXPECT_EQ(metrics[0].time, at(2));
}

TEST_F(MetricsTest, WhatTheAgentReportedGetsTheTimeOfItsLine) {
  const auto metrics = complete(line("acc", 0.75, 3), {{"acc", 0.75, at(9)}, {"other", 1, at(9)}});
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].time, at(3));
  EXPECT_EQ(metrics[1].time, at(9));
}

TEST_F(MetricsTest, TornAndForeignLinesAreLeftOut) {
  const auto metrics =
      complete("nonsense\n{}\n[]\n" + line("acc", 1, 1) + R"({"t":1,"n":"a","v":7)", {});
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].name, "acc");
}

TEST_F(MetricsTest, OfALongFileTheEndIsRead) {
  std::string text = line("early", 1, 1);
  while (text.size() < (std::size_t{9} << 20)) text += line("acc", 0.5, 2);
  const auto metrics = complete(text + line("acc", 0.9, 3), {});
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].value, 0.9);
}

TEST_F(MetricsTest, AJobWithoutMetricsHasNone) {
  std::vector<FinalMetric> metrics;
  complete_metrics(folder_.path(), metrics);
  EXPECT_TRUE(metrics.empty());
}

}  // namespace
}  // namespace atelier::jobs
