#include "api/descriptions.h"

#include <gtest/gtest.h>

#include "api/internal/fake_parts.h"

namespace atelier::api {
namespace {

Descriptions::Text text(std::string_view words) {
  return std::make_shared<const std::string>(words);
}

TEST(Descriptions, AreFoundByTheirVersionAlone) {
  Descriptions kept;
  EXPECT_EQ(kept.find({1, 1}), nullptr);
  kept.keep({1, 1}, text("one"));
  kept.keep({2, 1}, text("another job"));
  EXPECT_EQ(*kept.find({1, 1}), "one");
  EXPECT_EQ(kept.find({1, 2}), nullptr);
  kept.keep({1, 2}, text("changed"));
  EXPECT_EQ(kept.find({1, 1}), nullptr) << "only the last of a job is kept";
  EXPECT_EQ(*kept.find({1, 2}), "changed");
  EXPECT_EQ(*kept.find({2, 1}), "another job");
}

TEST(Descriptions, TakeNoMoreRoomThanTheyMayAndLoseWhatWasNotAskedForLongest) {
  Descriptions kept{2000};
  kept.keep({0, 0}, text(std::string(3000, 'x')));
  EXPECT_EQ(kept.bytes(), 0u) << "one that is larger than all of the room is not kept";
  for (std::uint64_t id = 1; id <= 50; ++id) {
    kept.keep({id, 1}, text(std::string(100, 'x')));
    EXPECT_NE(kept.find({1, 1}), nullptr) << "asked for again and again";
    EXPECT_LE(kept.bytes(), 2000u);
  }
  EXPECT_NE(kept.find({50, 1}), nullptr);
  EXPECT_EQ(kept.find({2, 1}), nullptr);
}

class DescribeTwice : public ::testing::Test {
 protected:
  internal::FakeWorld world_;
  jobs::TrainingJob& job_ = make();

  jobs::TrainingJob& make() {
    world_.call("CreateTrainingJob", json::serialize(internal::training_request()));
    world_.jobs.steady_versions = true;
    jobs::TrainingJob& job = world_.jobs.by_name.at("job-1");
    job.id = 7;
    job.version = 1;
    return job;
  }
  std::string describe() {
    return internal::body_of(world_.call("DescribeTrainingJob", R"({"TrainingJobName":"job-1"})"));
  }
};

TEST_F(DescribeTwice, AChangedJobIsDescribedAnew) {
  const std::string first = describe();
  EXPECT_EQ(describe(), first);
  job_.failure_reason = "a change without a version, to see what was kept";
  EXPECT_EQ(describe(), first);
  ++job_.version;
  EXPECT_NE(describe().find("a change without"), std::string::npos);
  job_.id = 8;  // deleted, and made again
  job_.failure_reason = "another";
  EXPECT_NE(describe().find("another"), std::string::npos);
}

TEST_F(DescribeTwice, TheTimesOfARunningJobGoOn) {
  job_.status = "InProgress";
  job_.started = job_.attempts.began = world_.clock.time;
  EXPECT_NE(describe().find(R"("TrainingTimeInSeconds":1,)"), std::string::npos) << describe();
  world_.clock.time += std::chrono::seconds{9};
  // The request is signed anew with the clock, so it is the same job at a later time.
  EXPECT_NE(describe().find(R"("TrainingTimeInSeconds":9,)"), std::string::npos) << describe();
}

TEST_F(DescribeTwice, AKeyThatMayNotDescribeGetsNothingThatWasKept) {
  describe();
  world_.keys.entry.principal.authority = {};
  EXPECT_NE(describe().find("is not authorized"), std::string::npos);
}

}  // namespace
}  // namespace atelier::api
