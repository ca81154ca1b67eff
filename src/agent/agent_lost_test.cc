// Agents that are killed, and those that take over from them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent/agent_test.h"
#include "agent/attempt_clock.h"
#include "base/json.h"

namespace atelier::agent {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(AgentTest, AnAgentThatOutlivesItsLauncherReportsTheEnd) {
  native("echo hello");
  launch();
  const UniqueFd watch{inotify_init1(IN_CLOEXEC)};
  inotify_add_watch(watch.get(), job_.c_str(), IN_MODIFY | IN_CREATE | IN_DELETE);
  while (!is_last_event(last().kind)) {
    pollfd waiting{watch.get(), POLLIN, 0};
    ASSERT_GT(poll(&waiting, 1, 30000), 0);
    char events[4096];
    ASSERT_GT(read(watch.get(), events, sizeof events), 0);
  }
  EXPECT_EQ(last().kind, "completed");
}

TEST_F(AgentTest, AKilledAgentTakesItsProgramWithItAndTheNextOneSaysSo) {
  native("echo partial > /opt/ml/output/data/x; echo ready; sleep 1000");
  const pid_t agent = launch();
  ASSERT_GT(agent, 0);
  EXPECT_TRUE(agent_alive(job_));
  wait_for_line("ready");
  // The program holds its working folder; when it is dead the kernel lets this descriptor's lock
  // go.
  const UniqueFd pidfd{static_cast<int>(syscall(434 /* pidfd_open */, agent, 0))};
  kill(agent, SIGKILL);
  pollfd waiting{pidfd.get(), POLLIN, 0};
  ASSERT_GT(poll(&waiting, 1, 10000), 0);
  EXPECT_FALSE(agent_alive(job_));
  run_agent(job_).value();
  EXPECT_EQ(last().kind, "failed");
  EXPECT_THAT(last().message, HasSubstr("the agent was killed while the program ran"));
  EXPECT_EQ(log(), "ready\n");  // it did not run again
  EXPECT_EQ(untar("prefix/job-1/output/output.tar.gz"), "./x:partial\n");
}

TEST_F(AgentTest, AnAttemptThatWasLostTookTheTimeThatItsAgentLived) {
  native("echo ready; sleep 1000");
  const pid_t agent = launch();
  ASSERT_GT(agent, 0);
  wait_for_line("ready");
  const UniqueFd pidfd{static_cast<int>(syscall(434 /* pidfd_open */, agent, 0))};
  kill(agent, SIGKILL);
  pollfd waiting{pidfd.get(), POLLIN, 0};
  ASSERT_GT(poll(&waiting, 1, 10000), 0);
  // As it would be after some hours: what it left is the time that counts.
  ASSERT_TRUE(AttemptClock::read(job_, 1));
  EXPECT_FALSE(AttemptClock::read(job_, 2));
  ASSERT_TRUE(AttemptClock::start(job_, 1, std::chrono::milliseconds{1234}));
  const auto left = AttemptClock::read(job_, 1).value();
  ASSERT_GE(left.count(), 1234);
  run_agent(job_).value();
  EXPECT_EQ(last().kind, "failed");
  EXPECT_EQ(find_int(parse_json(last().detail_json).value(), "ran_ms"), left.count());
  EXPECT_FALSE(AttemptClock::read(job_, 1)) << "and goes with the rest";
}

TEST_F(AgentTest, AnAgentThatWasKilledWhileUploadingUploadsAgainAndCompletes) {
  native("echo ran again");
  write_spec();
  make_folders(job_ / "ml/model").value();
  std::ofstream{job_ / "ml/model/w"} << "kept\n";
  {
    Journal journal = Journal::open(job_, system_clock()).value();
    for (const char* kind : {"started", "downloading", "training"}) {
      journal.append(kind, "").value();
    }
    journal
        .append("uploading", "", R"({"outcome":"completed","ran":true,"final_metrics":{"a":1.5}})")
        .value();
  }
  run_agent(job_).value();
  EXPECT_EQ(last().kind, "completed");
  EXPECT_THAT(last().detail_json, HasSubstr("\"a\":1.5"));
  EXPECT_THAT(log(), Not(HasSubstr("ran again")));
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./w:kept\n");
  const std::size_t count = events().size();
  run_agent(job_).value();
  EXPECT_EQ(events().size(), count);
}

TEST_F(AgentTest, WhatAnAgentThatWasKilledWhileCleaningUpHasLeftGoesWithTheNext) {
  for (const char* detail : {R"({"delivered":true})", R"({"delivered":false})"}) {
    fs::remove(job_ / "journal.jsonl");
    for (const char* part : {"ml/model", "ml/input", "tmp"}) make_folders(job_ / part).value();
    write_spec();
    Journal::open(job_, system_clock()).value().append("completed", "", detail).value();
    EXPECT_TRUE(needs_cleaning(job_));
    run_agent(job_).value();
    EXPECT_FALSE(needs_cleaning(job_));
    EXPECT_FALSE(fs::exists(job_ / "tmp"));
    EXPECT_FALSE(fs::exists(job_ / "ml/input"));
    // What could not be uploaded is kept.
    EXPECT_EQ(fs::exists(job_ / "ml/model"), detail == std::string_view{R"({"delivered":false})"});
    EXPECT_EQ(events().size(), 1U);
  }
}

TEST_F(AgentTest, ASecondAgentOnTheFolderIsRefused) {
  native("true");
  write_spec();
  const UniqueFd lock = lock_file(job_ / "agent.lock").value();
  EXPECT_TRUE(agent_alive(job_));
  EXPECT_EQ(run_agent(job_).error().code, Code::kFailedPrecondition);
}

TEST_F(AgentTest, ASpecThatCannotBeReadFailsTheJob) {
  write_file_durably(job_ / "spec.json", "{}", 0600).value();
  run_agent(job_).value();
  EXPECT_EQ(last().message, "InternalServerError: spec.job_name has to be given");
}

TEST_F(AgentTest, AProgramThatCannotStartAnAgentSaysWhy) {
  write_spec();
  EXPECT_THAT(launch_agent("/no/such/atelier", job_).error().message,
              HasSubstr("/no/such/atelier"));
  EXPECT_THAT(launch_agent("/bin/false", job_).error().message, HasSubstr("did not start"));
}

}  // namespace
}  // namespace atelier::agent
