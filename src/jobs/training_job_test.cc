#include "jobs/training_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atelier::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Time at(int seconds) { return from_epoch_milliseconds(1'796'022'000'000 + seconds * 1000); }

AgentEvent event(std::uint64_t sequence, std::string kind, int seconds, std::string message = {},
                 std::string detail = {}) {
  return {sequence, std::move(kind), std::move(message), std::move(detail), at(seconds)};
}

TrainingJob after(TrainingJob job, const std::vector<Event>& events, int seconds = 1000) {
  for (const Event& each : events) job = advance(std::move(job), each, at(seconds))->job;
  return job;
}

TrainingJob running() {
  const TrainingJob granted = after(new_training_job("a", at(0)), {CapacityGranted{}}, 1);
  return after(granted,
               {event(1, "started", 1), event(2, "downloading", 2), event(3, "training", 3)}, 3);
}

std::vector<std::string> messages(const TrainingJob& job) {
  std::vector<std::string> lines;
  for (const Transition& transition : job.transitions) {
    lines.push_back(transition.status + ": " + transition.message);
  }
  return lines;
}

TEST(TrainingJob, AJobThatGoesWellPassesThroughSageMakersStatuses) {
  const TrainingJob job = after(
      running(), {event(4, "uploading", 10), event(5, "completed", 12, "", R"({"final_metrics":
      {"validation:accuracy": 0.92}})")});
  EXPECT_THAT(
      messages(job),
      ElementsAre(
          "Starting: Starting the training job", "Starting: Launching requested ML instances",
          "Starting: Preparing the instances for training", "Downloading: Downloading input data",
          "Training: Training image download completed. Training in progress.",
          "Uploading: Uploading generated training model", "Completed: Training job completed"));
  EXPECT_EQ(job.status, "Completed");
  EXPECT_EQ(job.secondary_status, "Completed");
  EXPECT_EQ(job.started, at(2));
  EXPECT_EQ(job.ended, at(12));
  EXPECT_EQ(job.modified, at(12));
  ASSERT_EQ(job.final_metrics.size(), 1u);
  EXPECT_EQ(job.final_metrics[0].value, 0.92);
  for (std::size_t i = 0; i + 1 < job.transitions.size(); ++i) {
    EXPECT_EQ(job.transitions[i].end, job.transitions[i + 1].start);
  }
  EXPECT_EQ(job.transitions.back().end, at(12));
}

TEST(TrainingJob, TheCurrentTransitionHasNoEnd) { EXPECT_FALSE(running().transitions.back().end); }

TEST(TrainingJob, AFullHostMakesItPendingWithTheReason) {
  const TrainingJob job = after(new_training_job("a", at(0)), {Queued{"2 vCPUs are missing"}});
  EXPECT_EQ(job.status, "InProgress");
  EXPECT_EQ(job.secondary_status, "Pending");
  EXPECT_EQ(job.transitions.back().message, "2 vCPUs are missing");
  EXPECT_EQ(after(job, {Queued{"2 vCPUs are missing"}}).version, job.version);
  EXPECT_EQ(after(job, {Queued{"1 vCPU is missing"}}).transitions.size(), 3u);
  EXPECT_EQ(advance(running(), Queued{"no"}, at(9)).error().code, Code::kFailedPrecondition);
}

TEST(TrainingJob, AGrantedShareLaunchesTheAgent) {
  const auto step = advance(new_training_job("a", at(0)), CapacityGranted{}, at(1));
  EXPECT_THAT(step->effects, ElementsAre(Effect::kLaunchAgent));
  EXPECT_TRUE(step->job.admitted);
}

TEST(TrainingJob, AStopInTheQueueEndsItAtOnce) {
  const auto step =
      advance(after(new_training_job("a", at(0)), {Queued{"full"}}), StopRequested{}, at(1001));
  EXPECT_EQ(step->job.status, "Stopped");
  EXPECT_THAT(messages(step->job),
              ElementsAre("Starting: Starting the training job", "Pending: full",
                          "Stopping: Stopping the training job", "Stopped: Training job stopped"));
  EXPECT_THAT(step->effects, ElementsAre(Effect::kReleaseCapacity));
  EXPECT_FALSE(step->job.ended) << "it never started, so it has no training time";
}

TEST(TrainingJob, AStopWhileItStartsIsPassedToTheAgent) {
  const auto step =
      advance(after(new_training_job("a", at(0)), {CapacityGranted{}}), StopRequested{}, at(1001));
  EXPECT_EQ(step->job.status, "Stopping");
  EXPECT_THAT(step->effects, ElementsAre(Effect::kStopAgent));
  const TrainingJob ended = after(step->job, {event(1, "started", 1), event(2, "stopped", 2)});
  EXPECT_EQ(ended.status, "Stopped");
  EXPECT_THAT(messages(ended),
              testing::Not(testing::Contains("Starting: Preparing the instances for "
                                             "training")))
      << "an event that was under way does not undo Stopping";
}

TEST(TrainingJob, AnotherStopWhileItUploadsIsPassedToTheAgentAndARetryOfTheFirstIsNot) {
  const TrainingJob stopping = after(running(), {StopRequested{"call-1"}, StopRequested{"call-2"}});
  EXPECT_FALSE(stopping.attempts.stopped_again) << "its program has not ended yet";
  const TrainingJob uploading = after(stopping, {event(4, "uploading", 6)});
  EXPECT_EQ(after(uploading, {StopRequested{"call-1"}}).version, uploading.version);
  const auto step = advance(uploading, StopRequested{"call-3"}, at(7000));
  EXPECT_THAT(step->effects, ElementsAre(Effect::kStopAgent));
  EXPECT_TRUE(step->job.attempts.stopped_again);
  EXPECT_EQ(step->job.secondary_status, "Uploading");
  EXPECT_THAT(step->job.transitions.back().message, HasSubstr("stays on the host"));
  EXPECT_EQ(after(step->job, {StopRequested{"call-4"}}).version, step->job.version);
  const TrainingJob late = after(
      running(), {event(4, "uploading", 6), StopRequested{"call-1"}, StopRequested{"call-1"}});
  EXPECT_FALSE(late.attempts.stopped_again);
  EXPECT_TRUE(after(late, {StopRequested{"call-2"}}).attempts.stopped_again);
  const TrainingJob ended = after(step->job, {event(5, "stopped", 8, "the model is here")});
  EXPECT_EQ(ended.transitions.back().message, "Training job stopped: the model is here");
}

TEST(TrainingJob, AStopWhileItRunsGoesThroughUploadingToStopped) {
  const TrainingJob stopping = after(running(), {StopRequested{}}, 5);
  EXPECT_EQ(stopping.status, "Stopping");
  const TrainingJob uploading = after(stopping, {event(4, "uploading", 6)});
  EXPECT_EQ(uploading.status, "Stopping");
  EXPECT_EQ(uploading.secondary_status, "Uploading");
  const TrainingJob ended = after(uploading, {event(5, "stopped", 7)});
  EXPECT_EQ(ended.status, "Stopped");
  EXPECT_EQ(ended.secondary_status, "Stopped");
  EXPECT_EQ(ended.ended, at(7));
}

TEST(TrainingJob, AStopThatComesAfterTheProgramsEndLeavesItComplete) {
  const TrainingJob job =
      after(running(), {event(4, "uploading", 6), StopRequested{}, event(5, "completed", 7)});
  EXPECT_EQ(job.status, "Completed");
}

TEST(TrainingJob, AStopOfAnEndedJobIsRefusedByItsStatus) {
  const auto step = advance(after(running(), {event(4, "completed", 6)}), StopRequested{}, at(8));
  EXPECT_EQ(step.error().code, Code::kFailedPrecondition);
  EXPECT_NE(step.error().message.find("Completed"), std::string::npos);
}

TEST(TrainingJob, ASecondStopAsksTheAgentAgainAndChangesNothing) {
  const TrainingJob stopping = after(running(), {StopRequested{}});
  const auto step = advance(stopping, StopRequested{}, at(1001));
  EXPECT_EQ(step->job.version, stopping.version);
  EXPECT_THAT(step->effects, ElementsAre(Effect::kStopAgent));
}

TEST(TrainingJob, MaxRuntimeEndsItAsStopped) {
  const TrainingJob job = after(running(), {event(4, "uploading", 6), event(5, "max-runtime", 7)});
  EXPECT_EQ(job.status, "Stopped");
  EXPECT_EQ(job.secondary_status, "MaxRuntimeExceeded");
}

TEST(TrainingJob, AFailureCarriesTheAgentsReason) {
  const TrainingJob job =
      after(running(), {event(4, "failed", 6, "AlgorithmError: no such file, exit code: 1")});
  EXPECT_EQ(job.status, "Failed");
  EXPECT_EQ(job.failure_reason, "AlgorithmError: no such file, exit code: 1");
  EXPECT_EQ(messages(job).back(), "Failed: Training job failed");
}

TEST(TrainingJob, AReasonIsCutToWhatTheServiceAllowsAndBetweenCharacters) {
  std::string reason(1023, 'x');
  reason += "\u00e9tat";
  const TrainingJob job = after(running(), {event(4, "failed", 6, reason)});
  EXPECT_EQ(job.failure_reason, std::string(1023, 'x') + "\xC3\xA9");
}

TEST(TrainingJob, ALostAgentIsAnInternalServerError) {
  const auto step = advance(running(), AgentLost{"killed by signal 9"}, at(9));
  EXPECT_EQ(step->job.status, "Failed");
  EXPECT_EQ(step->job.failure_reason, "InternalServerError: killed by signal 9");
  EXPECT_EQ(step->job.ended, at(9));
  EXPECT_THAT(step->effects, ElementsAre(Effect::kReleaseCapacity));
  EXPECT_THAT(advance(step->job, AgentLost{"again"}, at(10))->effects, IsEmpty());
}

TEST(TrainingJob, AStoppedJobWhoseAgentNeverReportedIsStopped) {
  const TrainingJob job = after(new_training_job("a", at(0)),
                                {CapacityGranted{}, StopRequested{}, AgentLost{"never started"}});
  EXPECT_EQ(job.status, "Stopped");
  EXPECT_EQ(job.failure_reason, "");
}

TEST(TrainingJob, EventsThatWereTakenInChangeNothingAndMissingOnesAreSaid) {
  const TrainingJob job = running();
  const auto again = advance(job, event(2, "downloading", 2), at(9));
  EXPECT_EQ(again->job.version, job.version);
  EXPECT_EQ(again->job.transitions.size(), job.transitions.size());
  const TrainingJob later = advance(job, event(6, "uploading", 9), at(9))->job;
  EXPECT_EQ(later.secondary_status, "Uploading");
  EXPECT_THAT(later.warnings, ElementsAre("events 4 to 5 of the agent's journal are lost"));
}

TEST(TrainingJob, WarningsAndLimitsAreKeptAndBounded) {
  TrainingJob job =
      after(running(), {event(4, "warning", 5, "slow disk", R"({"limits":"rlimits"})"),
                        event(5, "later-kind", 6, "hm")});
  EXPECT_EQ(job.limits, "rlimits");
  EXPECT_EQ(job.secondary_status, "Training");
  ASSERT_EQ(job.warnings.size(), 2u);
  EXPECT_NE(job.warnings[1].find("later-kind"), std::string::npos);
  job = after(job, {event(6, "warning", 7, "slow disk")});
  EXPECT_EQ(job.warnings.size(), 2u) << "what was said is not said again";
  for (std::uint64_t n = 7; n < 300; ++n) {
    job = after(job, {event(n, "warning", 7, std::to_string(n))});
  }
  EXPECT_EQ(job.warnings.size(), 101u);
  EXPECT_EQ(job.journal_sequence, 299u);
}

TEST(TrainingJob, TimesNeverGoBackWhenAClockDoes) {
  TrainingJob job = running();
  job = advance(job, event(4, "uploading", -500), at(-1000))->job;
  EXPECT_EQ(job.modified, at(3));
  job = advance(job, event(5, "completed", 99999), at(20))->job;
  EXPECT_EQ(job.ended, at(20)) << "an agent's clock does not lead into the future";
}

TEST(TrainingJob, AStoppedJobDoesNotEndBeforeItsStartWhenAClockJumpsBack) {
  TrainingJob job = after(new_training_job("a", at(0)), {CapacityGranted{}, StopRequested{}}, 1);
  job = advance(job, event(1, "downloading", 10), at(10))->job;
  job = advance(job, event(2, "stopped", 5), at(5))->job;
  EXPECT_EQ(job.started, at(10));
  EXPECT_EQ(job.ended, at(10));
}

TEST(TrainingJob, WhatIsDueFollowsFromTheRecordAlone) {
  const TrainingJob fresh = new_training_job("a", at(0));
  EXPECT_THAT(effects_due(fresh), IsEmpty());
  EXPECT_THAT(effects_due(running()), ElementsAre(Effect::kLaunchAgent));
  EXPECT_THAT(effects_due(after(running(), {StopRequested{}})),
              ElementsAre(Effect::kLaunchAgent, Effect::kStopAgent));
  EXPECT_THAT(effects_due(after(fresh, {StopRequested{}})), ElementsAre(Effect::kReleaseCapacity));
}

TrainingJob spot_job() {
  TrainingJob job = new_training_job("a", at(0));
  job.terms.spot = true;
  job.terms.max_wait = std::chrono::seconds{3600};
  return job;
}

AgentEvent of_attempt(int attempt, AgentEvent event) {
  event.attempt = attempt;
  return event;
}

// Trains in its second attempt, after one that lasted from 2 to 20.
TrainingJob interrupted_once() {
  TrainingJob job = after(spot_job(), {CapacityGranted{}}, 1);
  job = after(job,
              {event(1, "started", 1), event(2, "downloading", 2), event(3, "training", 3),
               InterruptRequested{"room"}},
              10);
  job = after(job, {event(4, "interrupted", 20, "killed")}, 20);
  job = after(job, {Queued{"full"}}, 30);
  job = after(job, {CapacityGranted{}}, 40);
  return after(job,
               {of_attempt(2, event(5, "started", 41)), of_attempt(2, event(6, "downloading", 42)),
                of_attempt(2, event(7, "training", 43))},
               50);
}

TEST(TrainingJob, AnInterruptedJobWaitsAndStartsOver) {
  const TrainingJob job = after(
      interrupted_once(),
      {of_attempt(2, event(8, "uploading", 60)), of_attempt(2, event(9, "completed", 62))}, 70);
  EXPECT_THAT(
      messages(job),
      ElementsAre(
          "Starting: Starting the training job", "Starting: Launching requested ML instances",
          "Starting: Preparing the instances for training", "Downloading: Downloading input data",
          "Training: Training image download completed. Training in progress.",
          "Training: Spot interruption notice: room", "Interrupted: killed", "Pending: full",
          "Starting: Launching requested ML instances",
          "Starting: Preparing the instances for training", "Downloading: Downloading input data",
          "Training: Training image download completed. Training in progress.",
          "Uploading: Uploading generated training model", "Completed: Training job completed"));
  EXPECT_EQ(job.started, at(2));
  EXPECT_EQ(job.ended, at(62));
  EXPECT_EQ(job.attempts.number, 2);
  EXPECT_EQ(job.attempts.interruptions, 1);
  EXPECT_EQ(job_times(job, at(999)).training, 18 + 20) << "waiting is not counted";
}

TEST(TrainingJob, ASpotJobIsBilledThePartThatItsPriceIsOfTheOnDemandPrice) {
  TrainingJob job = interrupted_once();
  job.terms.price_per_hour = 4;
  job.terms.spot_price_per_hour = 1;
  EXPECT_EQ(job_times(job, at(62)).training, 38);
  EXPECT_EQ(job_times(job, at(62)).billable, 10) << "9.5 s, of which each begun second counts";
  job.terms.spot = false;
  EXPECT_EQ(job_times(job, at(62)).billable, 38);
  EXPECT_EQ(job_times(new_training_job("b", at(0)), at(9)).training, 0);
}

TEST(TrainingJob, AClockThatJumpsIsNotBilled) {
  TrainingJob job = after(running(), {event(4, "uploading", 10)}, 90000);
  job = advance(job, event(5, "completed", 90000, "", R"({"ran_ms": 9500})"), at(90000))->job;
  EXPECT_EQ(job_times(job, at(90000)).training, 10);
}

TEST(TrainingJob, OnlyASpotJobThatRunsIsInterruptedAndAnUploadIsLeftToFinish) {
  const auto code = [](const TrainingJob& job) {
    return advance(job, InterruptRequested{"room"}, at(50)).error().code;
  };
  EXPECT_EQ(code(running()), Code::kFailedPrecondition);
  EXPECT_EQ(code(spot_job()), Code::kFailedPrecondition);
  const TrainingJob job = interrupted_once();
  EXPECT_EQ(code(after(job, {StopRequested{}}, 50)), Code::kFailedPrecondition);
  EXPECT_EQ(code(after(job, {of_attempt(2, event(8, "uploading", 50))}, 50)),
            Code::kFailedPrecondition);
  const auto warned = advance(job, InterruptRequested{"room"}, at(50));
  EXPECT_THAT(warned->effects, ElementsAre(Effect::kInterruptAgent));
  EXPECT_EQ(advance(warned->job, InterruptRequested{"again"}, at(51))->job.version,
            warned->job.version);
  const TrainingJob done = after(
      warned->job,
      {of_attempt(2, event(8, "uploading", 52)), of_attempt(2, event(9, "completed", 53))}, 60);
  EXPECT_EQ(done.status, "Completed") << "it finished within the notice";
}

TEST(TrainingJob, AStopOfAJobThatWaitsOrIsWarnedEndsIt) {
  TrainingJob job = after(interrupted_once(), {InterruptRequested{"room"}, StopRequested{}}, 50);
  job = after(job, {of_attempt(2, event(8, "interrupted", 51))}, 51);
  EXPECT_EQ(job.status, "Stopped");
  job = after(interrupted_once(), {InterruptRequested{"room"}}, 50);
  job = after(job, {of_attempt(2, event(8, "interrupted", 51)), StopRequested{}}, 60);
  EXPECT_EQ(job.status, "Stopped");
  EXPECT_EQ(job_times(job, at(999)).training, 18 + 9);
}

TEST(TrainingJob, TheEndOfMaxWaitEndsAJobThatWaitsAndStopsOneThatRuns) {
  const TrainingJob waiting = after(spot_job(), {Queued{"full"}, WaitExceeded{}});
  EXPECT_EQ(waiting.status, "Stopped");
  EXPECT_EQ(waiting.secondary_status, "MaxWaitTimeExceeded");
  const auto step = advance(interrupted_once(), WaitExceeded{}, at(50));
  EXPECT_THAT(step->effects, ElementsAre(Effect::kStopAgent));
  EXPECT_EQ(step->job.status, "InProgress");
  EXPECT_EQ(step->job.secondary_status, "Stopping");
  const TrainingJob ended =
      after(step->job,
            {of_attempt(2, event(8, "uploading", 52)), of_attempt(2, event(9, "stopped", 53))}, 60);
  EXPECT_EQ(ended.status, "Stopped");
  EXPECT_EQ(ended.secondary_status, "MaxWaitTimeExceeded");
  EXPECT_THAT(ended.transitions.back().message, testing::HasSubstr("of 3600"));
}

TEST(TrainingJob, MaxRuntimeIsThatOfAllAttempts) {
  TrainingJob job = interrupted_once();
  job.terms.max_runtime = std::chrono::seconds{60};
  EXPECT_EQ(runtime_left(job), std::chrono::seconds{42});
  job.terms.max_runtime = std::chrono::seconds{25};
  job = after(job, {InterruptRequested{"room"}, of_attempt(2, event(8, "interrupted", 55))}, 55);
  EXPECT_EQ(job.status, "Stopped");
  EXPECT_EQ(job.secondary_status, "MaxRuntimeExceeded");
}

TEST(TrainingJob, AFailureOfOursIsRetriedAndAProgramsIsNot) {
  TrainingJob job = running();
  job.terms.max_retries = 1;
  EXPECT_EQ(after(job, {event(4, "failed", 5, "AlgorithmError: exit code 1")}, 5).status, "Failed");
  job = after(job, {event(4, "failed", 5, "InternalServerError: the disk died")}, 5);
  EXPECT_EQ(job.secondary_status, "Restarting");
  EXPECT_EQ(job.transitions.back().message,
            "Restarting the training job, retry 1 of 1: InternalServerError: the disk died");
  EXPECT_FALSE(job.admitted);
  job = after(job, {CapacityGranted{}, AgentLost{"killed"}}, 9);
  EXPECT_EQ(job.status, "Failed");
  EXPECT_EQ(job.failure_reason, "InternalServerError: killed");
}

TEST(TrainingJob, TheEndOfAnAttemptCountsWhateverItsNumberAndOnlyForThatAttempt) {
  const TrainingJob job = interrupted_once();  // its record has taken in event 7
  EXPECT_EQ(after(job, {event(4, "interrupted", 20)}, 60).version, job.version);
  EXPECT_EQ(after(job, {event(4, "completed", 20)}, 60).status, "InProgress");
  EXPECT_EQ(after(job, {of_attempt(2, event(2, "training", 60))}, 60).version, job.version);
  const TrainingJob ended = after(job, {of_attempt(2, event(2, "completed", 60))}, 60);
  EXPECT_EQ(ended.status, "Completed") << "the journal lost its tail, and went on below it";
  EXPECT_EQ(after(ended, {of_attempt(2, event(2, "completed", 60))}, 60).version, ended.version);
}

}  // namespace
}  // namespace atelier::jobs
