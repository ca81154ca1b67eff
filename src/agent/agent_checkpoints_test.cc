// Checkpoints of whole jobs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "agent/agent_test.h"

namespace atelier::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(AgentTest, CheckpointsAreRestoredCopiedWhileItRunsAndComeHomeAtAStop) {
  store_->put("data", "ckpt/a/checkpoint-1", "one", {}).value();
  store_->put("data", "ckpt/ab/checkpoint-1", "of another job", {}).value();
  spec_.checkpoints = {"s3://data/ckpt/a", "/opt/ml/checkpoints"};
  spec_.tensorboard = {"s3://out/tb", "/tmp/events"};
  native(
      "cat /opt/ml/input/config/checkpointconfig.json; echo; cat /opt/ml/checkpoints/*; echo; "
      "exec 3>/tmp/events/open; echo event >&3; cd /opt/ml/checkpoints; "
      "echo two > two.tmp; mv two.tmp checkpoint-2; rm checkpoint-1; "
      "trap 'echo last > last; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  wait_for_object("data", "ckpt/a/checkpoint-2");
  wait_for_object("out", "tb/job-1/tensorboard-output/open");
  request_stop(job_).value();
  agent.join();
  EXPECT_EQ(last().kind, "stopped") << last().message;
  EXPECT_THAT(log(), HasSubstr(R"({"S3Uri":"s3://data/ckpt/a","LocalPath":"/opt/ml/checkpoints"})"
                               "\none\n"));
  EXPECT_THAT(keys("data"),
              ElementsAre("ckpt/a/checkpoint-2", "ckpt/a/last", "ckpt/ab/checkpoint-1"));
  EXPECT_FALSE(fs::exists(job_ / "checkpoints.records"));
  EXPECT_FALSE(fs::exists(job_ / "tensorboard.files"));
}

TEST_F(AgentTest, AKilledProgramsHalfWrittenCheckpointDoesNotReplaceTheWholeOne) {
  spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
  native(
      "cd /opt/ml/checkpoints; echo whole > last.pt; echo ready; "
      "until [ -e /opt/ml/output/go ]; do sleep 0.02; done; "
      "exec 3>last.pt; printf half >&3; kill -KILL $$");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  wait_for_object("data", "ckpt/last.pt");
  std::ofstream{job_ / "ml/output/go"} << "";
  agent.join();
  EXPECT_EQ(last().kind, "failed");
  EXPECT_EQ(store_->get_bytes("data", "ckpt/last.pt", 100).value(), "whole\n");
  std::string warnings;
  for (const JournalEvent& event : events())
    warnings += event.kind == "warning" ? event.message : "";
  EXPECT_THAT(warnings, HasSubstr("'last.pt'"));
}

TEST_F(AgentTest, AnInterruptedJobsLastCheckpointIsThereForItsNextAttempt) {
  spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
  native(
      "cd /opt/ml/checkpoints; if [ -e step ]; then echo goes on at $(cat step); exit; fi; "
      "trap 'echo 17 > step; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_interrupt(job_, 1).value();
  agent.join();
  EXPECT_EQ(last().kind, "interrupted") << last().message;
  EXPECT_EQ(store_->get_bytes("data", "ckpt/step", 100).value(), "17\n");
  spec_.attempt = 2;
  spec_.journal_floor = events().size();
  EXPECT_EQ(run().kind, "completed") << last().message << log();
  EXPECT_THAT(log(), HasSubstr("goes on at 17"));
}

TEST_F(AgentTest, AnAgentThatIsKilledWhileItSavesAnInterruptedProgramIsFollowedByOneThatGoesOn) {
  spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
  native("echo ran again");
  write_spec();
  make_folders(job_ / "ml/checkpoints").value();
  std::ofstream{job_ / "ml/checkpoints/step"} << "17";
  {
    Journal journal = Journal::open(job_, system_clock()).value();
    for (const char* kind : {"started", "downloading", "training"}) {
      journal.append(kind, "").value();
    }
    journal
        .append("saving", "", R"({"outcome":"interrupted","reason":"r","ran":true,"killed":false})")
        .value();
  }
  run_agent(job_).value();
  EXPECT_EQ(last().kind, "interrupted") << last().message;
  EXPECT_EQ(last().message, "r");
  EXPECT_THAT(log(), Not(HasSubstr("ran again")));
  EXPECT_EQ(store_->get_bytes("data", "ckpt/step", 100).value(), "17");
}

// A trainer whose child writes the checkpoint: `child` is its program, after which it lives on.
const char* const kParent = R"(
import os, signal, sys, time
os.chdir('/opt/ml/checkpoints')
open('model', 'w').write('whole')
print('ready', flush=True)
while not os.path.exists('/opt/ml/output/go'): time.sleep(0.02)
child = os.fork()
if child == 0:
    file = open('model', 'wb')
    file.write(b'half')
    file.flush()
    time.sleep(2.5)
    END
os.waitpid(child, 0)
time.sleep(4)
CODE
)";

TEST_F(AgentTest, HalfAFileOfAKilledChildDoesNotReplaceAWholeOneWhileItsParentLivesOn) {
  for (const auto& [ending, code, expected] :
       {std::tuple{"os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(1)", "whole"},
        std::tuple{"file.write(b' and half'); file.close(); time.sleep(2); sys.exit()",
                   "os.kill(os.getpid(), signal.SIGKILL)", "half and half"}}) {
    fs::remove_all(job_);
    make_folders(job_ / "logs").value();
    spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
    std::string text = kParent;
    text.replace(text.find("END"), 3, ending);
    text.replace(text.find("CODE"), 4, code);
    native("exec python3 -c \"$PROGRAM\"");
    spec_.environment["PROGRAM"] = text;
    write_spec();
    std::thread agent{[&] { run_agent(job_).value(); }};
    wait_for_line("ready");
    wait_for_object("data", "ckpt/model");
    std::ofstream{job_ / "ml/output/go"} << "";
    agent.join();
    EXPECT_EQ(last().kind, "failed");
    EXPECT_EQ(store_->get_bytes("data", "ckpt/model", 100).value(), expected) << log();
    store_->remove("data", "ckpt/model").value();
  }
}

TEST_F(AgentTest, AJobThatEndsBeforeItsProgramStartsLeavesItsCheckpointsInS3) {
  for (const char* key : {"ckpt/a/1", "ckpt/a/2", "ckpt/a/3"})
    store_->put("data", key, key, {}).value();
  // The folder of the code takes a while to go, in which whoever still looks finds nothing.
  const fs::path code = folder_.path() / "code/many";
  make_folders(code).value();
  for (int i = 0; i < 1'000; ++i) std::ofstream{code / std::to_string(i)};
  script({{"train.py", "print('ran')\n"}}, "no-such-entry-point.py");
  spec_.checkpoints = {"s3://data/ckpt/a", "/tmp/ck"};
  EXPECT_THAT(run().message, StartsWith("ClientError"));
  EXPECT_THAT(log(), HasSubstr("3 files, 24 bytes restored"));
  EXPECT_THAT(log(), Not(HasSubstr("ran")));
  EXPECT_THAT(keys("data"),
              ElementsAre("ckpt/a/1", "ckpt/a/2", "ckpt/a/3", "source/sourcedir.tar.gz"));
}

TEST_F(AgentTest, CheckpointsThatCannotBeReadAreAClientErrorWithTheirPlace) {
  spec_.checkpoints = {"s3://no-such-bucket/x", "/opt/ml/checkpoints"};
  native("echo ran");
  EXPECT_THAT(
      run().message,
      StartsWith("ClientError: checkpoints of s3://no-such-bucket/x/ to /opt/ml/checkpoints"));
  EXPECT_THAT(log(), Not(HasSubstr("ran")));
}

}  // namespace
}  // namespace atelier::agent
