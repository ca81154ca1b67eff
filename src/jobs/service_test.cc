// The service with real agents' processes (jobs/fake_agent.cc). Journals are looked at only when a
// notice says so (the slow look is an hour away), so a test that ends shows that nothing waits for
// it.
#include "jobs/service.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "agent/spec.h"
#include "base/file.h"
#include "jobs/store.h"
#include "jobs/testing.h"

namespace atelier::jobs {
namespace {

using ::testing::HasSubstr;
using testing::request_for;
using testing::TestJob;
using testing::wait_for_end;
using testing::wait_until;

class ServiceTest : public ::testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::create();
  ServiceOptions options_ = testing::options_for(folder_.path() / "jobs", FAKE_AGENT);
  std::unique_ptr<Service> service_;

  ServiceTest() { options_.scan_interval = std::chrono::hours{1}; }
  void open() {
    service_.reset();
    auto service = Service::open(options_, system_clock());
    ASSERT_TRUE(service) << service.error().message;
    service_ = *std::move(service);
  }
  void open_and_run() {
    open();
    service_->run();
  }
  void create(const TestJob& job) {
    const auto arn = service_->create({request_for(job), ""});
    ASSERT_TRUE(arn) << arn.error().message;
  }
  std::string starts(const std::string& name) {
    return read_file(options_.folder / name / "starts").value_or("");
  }
  // Waits until it is gone.
  void kill_agent(const std::string& name) {
    const UniqueFd lock = *open_file(options_.folder / name / "agent.lock", O_RDONLY);
    struct stat wanted {};
    ASSERT_EQ(fstat(lock.get(), &wanted), 0);
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const auto command = read_file(entry.path() / "cmdline");
      const std::string folder = (options_.folder / name).string() + '\0';
      if (command && command->ends_with(folder)) {
        kill(std::stoi(entry.path().filename().string()), SIGKILL);
      }
    }
    ASSERT_EQ(flock(lock.get(), LOCK_SH), 0);
    ASSERT_EQ(flock(lock.get(), LOCK_UN), 0);
  }
  // Until it has left, some milliseconds after its last event: its lock is there to be had then.
  void wait_for_agent(const std::string& name) {
    const UniqueFd lock = *open_file(options_.folder / name / "agent.lock", O_RDONLY);
    ASSERT_EQ(flock(lock.get(), LOCK_SH), 0);
    ASSERT_EQ(flock(lock.get(), LOCK_UN), 0);
  }
  static bool trains(const TrainingJob& job) { return job.secondary_status == "Training"; }
};

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
  std::filesystem::create_directories(options_.folder / ".removed" / "b.1" /
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
