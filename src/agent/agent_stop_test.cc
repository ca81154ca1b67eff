// Programs that are told to end: stops, interruptions, and the end of their time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "agent/agent_test.h"

namespace atelier::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(AgentTest, AStopEndsAProgramThatIgnoresSigtermAndUploadsWhatThereIs) {
  native(
      "trap 'echo ignored' TERM; echo half > /opt/ml/model/half; echo ready; "
      "while :; do sleep 0.1; done");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_stop(job_).value();
  request_stop(job_).value();
  agent.join();
  EXPECT_EQ(last().kind, "stopped");
  EXPECT_THAT(log(), HasSubstr("ignored"));
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./half:half\n");
}

TEST_F(AgentTest, AStopBeforeTheStartRunsNothing) {
  native("echo ran");
  request_stop(job_).value();
  EXPECT_EQ(run().kind, "stopped");
  EXPECT_THAT(kinds(), ElementsAre("started", "stopped"));
  EXPECT_THAT(log(), Not(HasSubstr("ran")));
}

TEST_F(AgentTest, AnInterruptedProgramIsKilledAtTheEndOfItsNoticeAndTheNextAttemptStartsAfresh) {
  spec_.interruption_notice = std::chrono::seconds{1};
  native(
      "trap 'echo ignored' TERM; echo half > /opt/ml/model/half; echo ready; "
      "while :; do sleep 0.1; done");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_interrupt(job_, 1).value();
  agent.join();
  EXPECT_EQ(last().kind, "interrupted");
  EXPECT_THAT(last().message, HasSubstr("killed at the end of its 1 s of notice"));
  EXPECT_THAT(last().detail_json, HasSubstr("\"ran_ms\":"));
  EXPECT_FALSE(fs::exists(job_ / "ml"));
  EXPECT_FALSE(store_->head("out", "prefix/job-1/output/model.tar.gz"));
  run_agent(job_).value();
  EXPECT_EQ(kinds().size(), 5U) << "the attempt is over, whoever starts another agent";

  spec_.attempt = 2;
  spec_.journal_floor = 5;
  native("ls /opt/ml/model; echo whole > /opt/ml/model/whole");
  EXPECT_EQ(run().kind, "completed");
  EXPECT_EQ(last().attempt, 2);
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./whole:whole\n");
  EXPECT_THAT(log(), HasSubstr("ready")) << "the log is that of all attempts";
  EXPECT_THAT(kinds(), ElementsAre("started", "downloading", "training", "saving", "interrupted",
                                   "started", "downloading", "training", "uploading", "completed"));
}

TEST_F(AgentTest, AProgramThatFinishesWithinTheNoticeIsComplete) {
  native("trap '' TERM; echo ready; sleep 1; echo w > /opt/ml/model/w");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_interrupt(job_, 1).value();
  agent.join();
  EXPECT_EQ(last().kind, "completed");
}

TEST_F(AgentTest, AProgramThatSavesItsStateOnSigtermAndEndsWellIsInterruptedNotComplete) {
  native("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_interrupt(job_, 1).value();
  agent.join();
  EXPECT_EQ(last().kind, "interrupted");
  EXPECT_THAT(last().message, HasSubstr("the program ended with exit code 0"));
}

TEST_F(AgentTest, AnInterruptionBeforeTheStartRunsNothingAndIsNotForTheNextAttempt) {
  native("echo ran");
  request_interrupt(job_, 1).value();
  EXPECT_EQ(run().kind, "interrupted");
  EXPECT_THAT(log(), Not(HasSubstr("ran")));
  spec_.attempt = 2;
  EXPECT_EQ(run().kind, "completed");
}

TEST_F(AgentTest, TheLimitOfTimeEndsAProgramThatEndsWellOnSigterm) {
  spec_.max_runtime = std::chrono::seconds{3};
  native("trap 'echo saved > /opt/ml/model/state; exit 0' TERM; while :; do sleep 0.05; done");
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "max-runtime");
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./state:saved\n");
}

}  // namespace
}  // namespace atelier::agent
