// What a service finds that another one has left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "jobs/service.h"
#include "jobs/service_test.h"
#include "jobs/testing.h"

namespace atelier::jobs {
namespace {

using ::testing::HasSubstr;
using testing::request_for;
using testing::ServiceTest;
using testing::wait_for_end;
using testing::wait_until;

TEST_F(ServiceTest, AJobGoesOnWithoutTheServiceAndIsAdoptedAgain) {
  open_and_run();
  create({.name = "a", .work_ms = 60000});
  wait_until(*service_, "a", trains);
  open_and_run();
  EXPECT_EQ(service_->describe("a")->secondary_status, "Training");
  ASSERT_TRUE(service_->stop("a"));
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Stopped");
  EXPECT_EQ(starts("a"), "1");
}

TEST_F(ServiceTest, WhatHappenedWhileTheServiceWasAwayIsTakenInAtOnce) {
  open_and_run();
  create({.name = "a", .work_ms = 100});
  wait_until(*service_, "a", trains);
  service_.reset();
  wait_for_agent("a");
  open();
  const TrainingJob job = *service_->describe("a");
  EXPECT_EQ(job.status, "Completed");
  EXPECT_EQ(job.transitions.size(), 7u);
}

TEST_F(ServiceTest, AJobThatWasCommittedAndNeverLaunchedIsLaunched) {
  open();  // without run(): as if the process died right after the commit
  create({.name = "a"});
  EXPECT_FALSE(std::filesystem::exists(options_.folder / "a"));
  open_and_run();
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Completed");
  EXPECT_EQ(starts("a"), "1");
}

TEST_F(ServiceTest, TheQueueSurvivesARestartInItsOrder) {
  options_.host = {1, 64, 0};
  open();
  for (const char* name : {"c", "a", "b"}) create({.name = name});
  open_and_run();
  for (const char* name : {"c", "a", "b"}) wait_for_end(*service_, name);
  EXPECT_LE(*service_->describe("c")->ended, *service_->describe("a")->started);
  EXPECT_LE(*service_->describe("a")->ended, *service_->describe("b")->started);
}

TEST_F(ServiceTest, AStopThatWasCommittedAndNotPassedOnIsPassedOn) {
  open();
  create({.name = "a", .work_ms = 60000});
  ASSERT_TRUE(service_->stop("a"));
  EXPECT_EQ(service_->describe("a")->status, "Stopping");
  open_and_run();
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Stopped");
}

TEST_F(ServiceTest, ALeftoverFolderIsNotTakenForTheNewJobs) {
  ASSERT_TRUE(make_folders(options_.folder / "a"));
  open_and_run();
  const auto outcome = service_->create({request_for({.name = "a"}), "id"});
  EXPECT_EQ(outcome.error().code, Code::kAlreadyExists);
  EXPECT_THAT(outcome.error().message, HasSubstr((options_.folder / "a").string()));
}

}  // namespace
}  // namespace atelier::jobs
