// Creates, stops, failures, removals and logs; restarts and spot jobs have files of their own.
#include "jobs/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "agent/spec.h"
#include "base/file.h"
#include "base/id.h"
#include "jobs/service_test.h"
#include "jobs/store.h"
#include "jobs/testing.h"

namespace atelier::jobs {
namespace {

using ::testing::HasSubstr;
using testing::request_for;
using testing::ServiceTest;
using testing::wait_for_end;
using testing::wait_until;

TEST_F(ServiceTest, AJobRunsToItsEnd) {
  open_and_run();
  const auto arn = service_->create({request_for({.name = "a"}), "id-1"});
  ASSERT_TRUE(arn) << arn.error().message;
  EXPECT_EQ(*arn, "arn:aws:sagemaker:us-west-2:000000000000:training-job/a");
  const TrainingJob job = wait_for_end(*service_, "a");
  EXPECT_EQ(job.status, "Completed") << job.failure_reason;
  EXPECT_EQ(job.model_uri, "s3://out/prefix/a/output/model.tar.gz");
  EXPECT_EQ(job.limits, "none: a test");
  EXPECT_EQ(job.transitions.size(), 7u);
  EXPECT_TRUE(job.started && job.ended);
  ASSERT_EQ(job.final_metrics.size(), 1u);
  EXPECT_EQ(job.final_metrics[0].value, 0.75) << "the last value counts";
  EXPECT_EQ(starts("a"), "1");
}

TEST_F(ServiceTest, TheSpecIsForTheAgentsEyesOnly) {
  open_and_run();
  create({.name = "a"});
  wait_for_end(*service_, "a");
  struct stat info {};
  ASSERT_EQ(stat((options_.folder / "a" / "spec.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto spec = agent::parse_agent_spec(*read_file(options_.folder / "a" / "spec.json"));
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->s3.url, "http://127.0.0.1:1");
  EXPECT_EQ(spec->vcpus, 1);
}

TEST_F(ServiceTest, ARetriedCreateGetsTheSameAnswerAndAnotherIsRefused) {
  open_and_run();
  const std::string request = request_for({.name = "a"});
  const std::string arn = *service_->create({request, "id-1"});
  EXPECT_EQ(*service_->create({request, "id-1"}), arn);
  EXPECT_EQ(service_->create({request, "id-2"}).error().code, Code::kAlreadyExists);
  EXPECT_EQ(service_->create({request, ""}).error().code, Code::kAlreadyExists);
  EXPECT_EQ(service_->create({request_for({.name = "a", .work_ms = 5}), "id-1"}).error().code,
            Code::kAlreadyExists);
  wait_for_end(*service_, "a");
  EXPECT_EQ(*service_->create({request, "id-1"}), arn) << "after its end, too";
  EXPECT_EQ(starts("a"), "1");
}

TEST_F(ServiceTest, AChangedRequestIsKeptAndTheCreateIsStillTheSame) {
  open_and_run();
  const std::string request = request_for({.name = "a"});
  const std::string arn = *service_->create({request, "id-1"});
  const TrainingJob before = wait_for_end(*service_, "a");
  const auto to = [](std::string text, bool of_the_job) {
    return [=](const TrainingJob&, std::string& body) -> Result<bool> {
      body = text;
      return of_the_job;
    };
  };
  ASSERT_TRUE(service_->change_request("a", to(R"({"a":1})", false)));
  EXPECT_EQ(service_->describe("a")->modified, before.modified);
  ASSERT_TRUE(service_->change_request("a", to(R"({"a":2})", true)));
  EXPECT_FALSE(
      service_->change_request("a", [](const TrainingJob&, std::string& body) -> Result<bool> {
        body = "lost";
        return Error{Code::kInvalidArgument, "no"};
      }));
  EXPECT_EQ(service_->change_request("none", to("", true)).error().code, Code::kNotFound);
  open();
  const TrainingJob after = *service_->describe("a");
  EXPECT_EQ(after.request_json, R"({"a":2})");
  EXPECT_GE(after.modified, before.modified);
  EXPECT_EQ(after.version, before.version + 2);
  EXPECT_EQ(*service_->create({request, "id-1"}), arn) << "a retry, whatever the tags are now";
}

TEST_F(ServiceTest, ADeletedJobIsGoneWithItsFolderAndItsNameIsFree) {
  open_and_run();
  create({.name = "a"});
  EXPECT_EQ(service_->remove("a").error().code, Code::kFailedPrecondition);
  wait_for_end(*service_, "a");
  wait_for_agent("a");
  ASSERT_TRUE(service_->remove("a"));
  EXPECT_EQ(service_->describe("a").error().code, Code::kNotFound);
  EXPECT_EQ(service_->remove("a").error().code, Code::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(options_.folder / "a"));
  EXPECT_TRUE(std::filesystem::is_empty(options_.folder / ".removed"));
  EXPECT_TRUE(service_->log_streams({.prefix = "a/"})->streams.empty());
  create({.name = "a"});
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Completed");
  EXPECT_EQ(starts("a"), "1");
}

TEST_F(ServiceTest, ADeleteThatWasCutOffIsFinishedByTheNextStart) {
  open_and_run();
  create({.name = "a"});
  wait_for_end(*service_, "a");
  wait_for_agent("a");
  service_.reset();
  {  // killed between the commit and the folder
    const auto store = *Store::open(options_.folder / "jobs.db");
    ASSERT_TRUE(store->remove("a", store->load("a")->version));
    EXPECT_EQ(store->removed()->size(), 1u);
  }
  std::filesystem::create_directories(options_.folder / ".removed" / ("b." + random_id()) /
                                      "logs");  // or after it
  open_and_run();
  EXPECT_FALSE(std::filesystem::exists(options_.folder / "a"));
  EXPECT_FALSE(std::filesystem::exists(options_.folder / ".removed"));
  create({.name = "a"});
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Completed");
}

TEST_F(ServiceTest, OfManyCreatesOfANameAtOnceOneWins) {
  open_and_run();
  std::atomic<int> won = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        if (service_->create({request_for({.name = "a"}), std::to_string(i)})) ++won;
      });
    }
  }
  EXPECT_EQ(won, 1);
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Completed");
  EXPECT_EQ(starts("a"), "1");
}

TEST_F(ServiceTest, AFullHostQueuesAndSaysWhy) {
  options_.host = {1, 64, 0};
  open_and_run();
  create({.name = "first", .work_ms = 60000});
  create({.name = "second"});
  create({.name = "third"});
  const TrainingJob waiting = *service_->describe("second");
  EXPECT_EQ(waiting.secondary_status, "Pending");
  EXPECT_THAT(waiting.transitions.back().message,
              HasSubstr("1 vCPUs (the host has 1, 1 in use); used by first"));
  EXPECT_THAT(service_->describe("third")->transitions.back().message,
              HasSubstr("1 job ahead in the queue"));
  ASSERT_TRUE(service_->stop("first"));
  EXPECT_EQ(wait_for_end(*service_, "first").status, "Stopped");
  const TrainingJob second = wait_for_end(*service_, "second");
  EXPECT_EQ(second.status, "Completed");
  const TrainingJob third = wait_for_end(*service_, "third");
  EXPECT_EQ(third.status, "Completed");
  EXPECT_GE(*third.started, *second.ended) << "one after the other";
}

TEST_F(ServiceTest, AStopInTheQueueEndsTheJobWithoutAnAgent) {
  options_.host = {1, 64, 0};
  open_and_run();
  create({.name = "first", .work_ms = 60000});
  create({.name = "second"});
  ASSERT_TRUE(service_->stop("second"));
  EXPECT_EQ(service_->describe("second")->status, "Stopped");
  EXPECT_EQ(starts("second"), "");
  EXPECT_EQ(service_->stop("second").error().code, Code::kFailedPrecondition);
  ASSERT_TRUE(service_->stop("first"));
  wait_for_end(*service_, "first");
}

TEST_F(ServiceTest, AStopRightAfterTheCreateAndOneWhileItTrains) {
  open_and_run();
  create({.name = "starting", .work_ms = 60000});
  ASSERT_TRUE(service_->stop("starting"));
  create({.name = "training", .work_ms = 60000});
  wait_until(*service_, "training", trains);
  ASSERT_TRUE(service_->stop("training"));
  EXPECT_EQ(wait_for_end(*service_, "starting").status, "Stopped");
  const TrainingJob job = wait_for_end(*service_, "training");
  EXPECT_EQ(job.status, "Stopped");
  EXPECT_EQ(job.transitions[job.transitions.size() - 2].status, "Uploading");
  EXPECT_EQ(service_->stop("nobody").error().code, Code::kNotFound);
}

TEST_F(ServiceTest, AnotherStopWhileItUploadsReachesTheAgentAfterARestartToo) {
  open_and_run();
  for (const char* name : {"a", "b"}) create({.name = name, .outcome = "upload-slowly"});
  const auto uploads = [](const TrainingJob& job) { return job.secondary_status == "Uploading"; };
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(uploads(wait_until(*service_, name, uploads)));
    ASSERT_TRUE(service_->stop(name, "first"));
    EXPECT_EQ(service_->describe(name)->status, "Stopping");
  }
  ASSERT_TRUE(service_->stop("a", "second"));
  const TrainingJob ended = wait_for_end(*service_, "a");
  EXPECT_EQ(ended.status, "Stopped");
  EXPECT_EQ(ended.transitions.back().message, "Training job stopped: the rest is here");
  open();  // its thread does not run: what it commits is not passed on
  ASSERT_TRUE(service_->stop("b", "second"));
  open_and_run();
  EXPECT_EQ(wait_for_end(*service_, "b").status, "Stopped");
}

TEST_F(ServiceTest, AFailedJobSaysWhatTheAgentSays) {
  open_and_run();
  create({.name = "a", .outcome = "failed"});
  const TrainingJob job = wait_for_end(*service_, "a");
  EXPECT_EQ(job.status, "Failed");
  EXPECT_EQ(job.failure_reason, "AlgorithmError: as told, exit code: 1");
}

TEST_F(ServiceTest, AKilledAgentIsNoticedAndItsProgramIsNotRunAgain) {
  open_and_run();
  create({.name = "a", .outcome = "die"});
  const TrainingJob job = wait_for_end(*service_, "a");
  EXPECT_EQ(job.status, "Failed");
  EXPECT_THAT(job.failure_reason, HasSubstr("InternalServerError: the agent was killed"));
  EXPECT_EQ(starts("a"), "1");
}

TEST_F(ServiceTest, AnAgentThatIsKilledWhileItUploadsIsReplacedByOneThatFinishes) {
  open_and_run();
  create({.name = "a", .outcome = "die-uploading"});
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Completed");
  EXPECT_EQ(starts("a"), "1");
}

TEST_F(ServiceTest, AgentsThatKeepDyingAreGivenUpWithWhatIsKnown) {
  open_and_run();
  create({.name = "early", .outcome = "die-early"});
  create({.name = "starting", .outcome = "die-starting"});
  for (const char* name : {"early", "starting"}) {
    const TrainingJob job = wait_for_end(*service_, name);
    EXPECT_EQ(job.status, "Failed");
    EXPECT_THAT(job.failure_reason, HasSubstr("InternalServerError: 3 agents were started"));
    EXPECT_EQ(starts(name), "");
  }
  EXPECT_THAT(service_->describe("starting")->failure_reason,
              HasSubstr("Its last known state is Starting (Preparing the instances"));
}

TEST_F(ServiceTest, AJobThatIsGivenUpIsBilledWhatItsAgentHasNoted) {
  open_and_run();
  create({.name = "a", .outcome = "die-often"});
  const TrainingJob job = wait_for_end(*service_, "a");
  EXPECT_THAT(job.failure_reason, HasSubstr("agents were started"));
  EXPECT_EQ(job_times(job, system_clock().now()).billable, 25);
}

TEST_F(ServiceTest, WhatTheHostLacksForAMomentCostsAJobNothing) {
  options_.host = {1, 64, 0};
  open_and_run();
  create({.name = "blocks", .work_ms = 60000});
  create({.name = "a"});
  // Its agent's output cannot be opened: as on a disk without inodes, for as long as it lasts.
  const auto in_the_way = options_.folder / "a" / "agent.out";
  ASSERT_TRUE(make_folders(in_the_way));
  ASSERT_TRUE(service_->stop("blocks"));
  wait_until(*service_, "a", [](const TrainingJob& job) {
    return job.transitions.back().message.starts_with("Waiting for the host to start");
  });
  EXPECT_THAT(service_->describe("a")->transitions.back().message, HasSubstr("agent.out"));
  std::this_thread::sleep_for(std::chrono::milliseconds{1600});  // three tries, as it was once
  ASSERT_TRUE(remove_tree(in_the_way));
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Completed");
  EXPECT_EQ(starts("a"), "1");
}

TEST_F(ServiceTest, AJobOfADeletedOnesNameNeverGetsItsFolder) {
  open_and_run();
  create({.name = "a"});
  wait_for_end(*service_, "a");
  wait_for_agent("a");
  // A deletion whose folder could not be moved away, or that could not be noted as done.
  {
    const auto store = Store::open(options_.folder / "jobs.db");
    ASSERT_TRUE(store) << store.error().message;
    ASSERT_TRUE((*store)->remove("a", (*store)->load("a")->version));
  }
  create({.name = "a", .work_ms = 60000});
  wait_until(*service_, "a", trains);
  while (starts("a").empty()) {  // its program begins after its agent has said so
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  EXPECT_EQ(starts("a"), "1") << "of the new job alone";
  open_and_run();
  EXPECT_EQ(service_->describe("a")->secondary_status, "Training");
  EXPECT_EQ(starts("a"), "1");
  ASSERT_TRUE(service_->stop("a"));
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Stopped");
}

TEST_F(ServiceTest, AMissingAgentProgramIsNamed) {
  options_.agent_program = folder_.path() / "no-such-program";
  open_and_run();
  create({.name = "a"});
  const TrainingJob job = wait_for_end(*service_, "a");
  EXPECT_EQ(job.status, "Failed");
  EXPECT_THAT(job.failure_reason, HasSubstr("no-such-program"));
}

TEST_F(ServiceTest, LogsArePagedForwardAndBackward) {
  open_and_run();
  create({.name = "a"});
  const TrainingJob job = wait_for_end(*service_, "a");
  const auto streams = service_->log_streams({.prefix = "a/"});
  ASSERT_EQ(streams->streams.size(), 1u);
  EXPECT_EQ(streams->streams.front().name, job.log_stream);
  EXPECT_THAT(job.log_stream, ::testing::MatchesRegex("a/algo-1-[0-9]+"));
  EXPECT_TRUE(service_->log_streams({.prefix = "b/"})->streams.empty());

  LogQuery query{.stream = job.log_stream, .limit = 1, .from_head = true};
  const LogQueryPage first = *service_->log_events(query);
  ASSERT_EQ(first.events.size(), 1u);
  EXPECT_EQ(first.events[0].message, "hello from a");
  query.token = first.next_forward_token;
  const LogQueryPage second = *service_->log_events(query);
  ASSERT_EQ(second.events.size(), 1u);
  EXPECT_EQ(second.events[0].message, "bye");
  query.token = second.next_forward_token;
  const LogQueryPage end = *service_->log_events(query);
  EXPECT_TRUE(end.events.empty());
  EXPECT_EQ(end.next_forward_token, second.next_forward_token) << "the same token says the end";
  query.token = second.next_backward_token;
  EXPECT_EQ(service_->log_events(query)->events[0].message, "hello from a");
  query.stream = "a/algo-2-1";
  EXPECT_EQ(service_->log_events(query).error().code, Code::kNotFound);
}

TEST_F(ServiceTest, AJournalThatLostItsTailDoesNotHangItsJob) {
  open_and_run();
  create({.name = "a", .work_ms = 60000});
  wait_until(*service_, "a", trains);
  service_.reset();
  const auto journal = options_.folder / "a" / "journal.jsonl";
  const std::string lines = *read_file(journal);
  const auto events = *agent::read_journal(options_.folder / "a");
  kill_agent("a");
  ASSERT_TRUE(replace_file(journal, lines.substr(0, lines.find('\n') + 1)));
  open_and_run();
  const auto trains_again = [&](const TrainingJob& job) {
    return job.journal_sequence >= 2 * events.size();
  };
  EXPECT_TRUE(trains_again(wait_until(*service_, "a", trains_again)));
  ASSERT_TRUE(service_->stop("a"));
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Stopped");
}

}  // namespace
}  // namespace atelier::jobs
