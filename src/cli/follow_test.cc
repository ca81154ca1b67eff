#include "cli/follow.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/job_logs.h"

namespace atelier::cli {
namespace {

TEST(Follow, AProgressLineIsReadAsItsParts) {
  const auto parts = parse_progress(
      "progress: phase=fine-tune epoch=3/8 step=90/200 images_per_second=310 eta_seconds=95 "
      "train_loss=0.31");
  EXPECT_EQ(parts.at("phase"), "fine-tune");
  EXPECT_EQ(parts.at("epoch"), "3/8");
  const std::string line = render_progress(parts);
  EXPECT_NE(line.find("45 %"), std::string::npos);
  EXPECT_NE(line.find("310 pictures/s"), std::string::npos);
  EXPECT_NE(line.find("ETA 1 min 35 s"), std::string::npos);
}

TEST(Follow, APhaseWithoutStepsShowsHowManyPicturesAreDone) {
  const std::string line =
      render_progress(parse_progress("progress: phase=features done=30/120 images_per_second=60"));
  EXPECT_NE(line.find("25 %"), std::string::npos) << line;
}

TEST(JobLogs, AStreamIsThatOfItsInstance) {
  EXPECT_EQ(host_of_stream("job/algo-2-1796022355"), "algo-2");
  EXPECT_EQ(host_of_stream("algo-1/algo-12-1796022355"), "algo-12");
  for (const char* other :
       {"", "job", "job/", "job/x-1", "job/algo--1", "job/algo-0-1", "a/algo-x-1"}) {
    EXPECT_EQ(host_of_stream(other), "") << other;
  }
}

TEST(JobLogs, InstancesOfAllGroupsCount) {
  const auto count = [](const char* resources) {
    return instance_count(parse_json(resources).value());
  };
  EXPECT_EQ(count(R"({"ResourceConfig":{"InstanceCount":3}})"), 3);
  EXPECT_EQ(
      count(R"({"ResourceConfig":{"InstanceGroups":[{"InstanceCount":2},{"InstanceCount":1}]}})"),
      3);
  EXPECT_EQ(count("{}"), 1);
}

TEST(JobLogs, LinesOfSeveralInstancesStandBelowEachOther) {
  EXPECT_EQ(line_prefix("algo-2", 9, false), "algo-2  | ");
  EXPECT_EQ(line_prefix("algo-2", 10, false), "algo-2   | ");
  EXPECT_EQ(line_prefix("algo-10", 10, false), "algo-10  | ");
  EXPECT_NE(line_prefix("algo-1", 2, true), line_prefix("algo-1", 2, false));
}

TEST(Follow, OtherLinesAreNoProgress) {
  EXPECT_TRUE(parse_progress("Train-accuracy=0.9").empty());
  EXPECT_TRUE(parse_progress("").empty());
  EXPECT_EQ(render_progress(parse_progress("progress: step=1/0 x")), "");
}

}  // namespace
}  // namespace atelier::cli
