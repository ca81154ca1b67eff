// Interruptions, retries, and the deadlines of jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "jobs/service.h"
#include "jobs/service_test.h"
#include "jobs/testing.h"

namespace atelier::jobs {
namespace {

using ::testing::HasSubstr;
using testing::ServiceTest;
using testing::wait_for_end;
using testing::wait_until;

TEST_F(ServiceTest, AnInterruptedJobGoesBackToTheQueueAndRunsAgain) {
  open_and_run();
  create({.name = "a", .work_ms = 60000, .spot = true});
  wait_until(*service_, "a", trains);
  ASSERT_TRUE(service_->interrupt("a", "a test"));
  const TrainingJob again = wait_until(*service_, "a", [](const TrainingJob& job) {
    return job.attempts.number == 2 && trains(job);
  });
  EXPECT_EQ(again.secondary_status, "Training");
  EXPECT_EQ(again.attempts.interruptions, 1);
  ASSERT_TRUE(service_->stop("a"));
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Stopped");
  EXPECT_EQ(starts("a"), "12");
  EXPECT_EQ(service_->interrupt("a", "").error().code, Code::kFailedPrecondition);
  EXPECT_EQ(service_->interrupt("nobody", "").error().code, Code::kNotFound);
}

TEST_F(ServiceTest, AnOnDemandJobTakesTheRoomOfASpotJobWhichComesBackAfterIt) {
  options_.host = {2, 64, 0};
  open_and_run();
  create({.name = "spot-1", .work_ms = 60000, .spot = true});
  create({.name = "spot-2", .work_ms = 60000, .spot = true});
  wait_until(*service_, "spot-1", trains);
  wait_until(*service_, "spot-2", trains);
  create({.name = "spot-3", .spot = true});
  create({.name = "on-demand", .work_ms = 60000});
  const TrainingJob first = wait_until(*service_, "on-demand", trains);
  EXPECT_EQ(first.secondary_status, "Training");
  const TrainingJob victim = *service_->describe("spot-2");
  EXPECT_THAT(victim.transitions[5].message,
              HasSubstr("Spot interruption notice: on-demand job 'on-demand' needs the room"));
  EXPECT_EQ(victim.secondary_status, "Pending") << "and not spot-3, which came later";
  EXPECT_EQ(service_->describe("spot-1")->attempts.interruptions, 0);
  ASSERT_TRUE(service_->stop("on-demand"));
  wait_until(*service_, "spot-2", trains);
  for (const char* name : {"spot-1", "spot-2"}) ASSERT_TRUE(service_->stop(name));
  EXPECT_EQ(wait_for_end(*service_, "spot-3").status, "Completed");
  EXPECT_EQ(starts("spot-2"), "12");
}

TEST_F(ServiceTest, AnInterruptThatWasCommittedAndNotPassedOnIsPassedOn) {
  open_and_run();
  create({.name = "a", .work_ms = 60000, .spot = true});
  wait_until(*service_, "a", trains);
  open();  // without run(): as if the process died right after the commit
  ASSERT_TRUE(service_->interrupt("a", "a test"));
  open_and_run();
  const auto runs_again = [](const TrainingJob& job) {
    return job.attempts.number == 2 && trains(job);
  };
  EXPECT_TRUE(runs_again(wait_until(*service_, "a", runs_again)));
  ASSERT_TRUE(service_->stop("a"));
  wait_for_end(*service_, "a");
  EXPECT_EQ(starts("a"), "12");
}

TEST_F(ServiceTest, TheInterruptionModelOfAnInstanceTypeInterruptsEachAttemptAtItsTime) {
  compute::InstanceType flaky;
  flaky.name = "ml.flaky.1x";
  flaky.interruption_trace = {0.02, 0.03};
  options_.instances.types.push_back(flaky);
  open_and_run();
  create({.name = "a", .instance_type = "ml.flaky.1x", .work_ms = 60000, .spot = true});
  create({.name = "b", .instance_type = "ml.flaky.1x", .work_ms = 60000});
  const auto third = [](const TrainingJob& job) { return job.attempts.number == 3 && trains(job); };
  const TrainingJob job = wait_until(*service_, "a", third);
  EXPECT_EQ(job.attempts.interruptions, 2);
  for (const char* name : {"a", "b"}) ASSERT_TRUE(service_->stop(name));
  wait_for_end(*service_, "a");
  EXPECT_EQ(wait_for_end(*service_, "b").attempts.interruptions, 0) << "it is not spot";
}

TEST_F(ServiceTest, MaxWaitEndsAJobInTheQueueAndOneThatRuns) {
  options_.host = {1, 64, 0};
  open_and_run();
  create({.name = "blocks", .work_ms = 60000});
  create({.name = "waits", .spot = true, .max_wait = 1});
  EXPECT_EQ(wait_for_end(*service_, "waits").secondary_status, "MaxWaitTimeExceeded");
  EXPECT_EQ(starts("waits"), "");
  ASSERT_TRUE(service_->stop("blocks"));
  wait_for_end(*service_, "blocks");
  create({.name = "runs", .work_ms = 60000, .spot = true, .max_wait = 1});
  EXPECT_EQ(wait_for_end(*service_, "runs").secondary_status, "MaxWaitTimeExceeded");
  EXPECT_EQ(starts("runs"), "1");
}

TEST_F(ServiceTest, ALostAgentIsFollowedByAnotherAttemptWhereTheRequestSaysSo) {
  open_and_run();
  create({.name = "a", .outcome = "die-once", .retries = 2});
  const TrainingJob job = wait_for_end(*service_, "a");
  EXPECT_EQ(job.status, "Completed") << job.failure_reason;
  EXPECT_EQ(job.attempts.retries, 1);
  EXPECT_EQ(starts("a"), "12");
  create({.name = "b", .outcome = "die-early", .retries = 1});
  EXPECT_THAT(wait_for_end(*service_, "b").failure_reason, HasSubstr("3 agents were started"));
  EXPECT_EQ(service_->describe("b")->attempts.retries, 1);
  create({.name = "c", .outcome = "failed", .retries = 5});
  EXPECT_EQ(wait_for_end(*service_, "c").attempts.retries, 0) << "that was the program's fault";
}

// A power cut took the journal's tail, of which the record knows.

}  // namespace
}  // namespace atelier::jobs
