// Promises of the state machine under any sequence of events, with clocks that jump.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "jobs/training_job.h"

namespace atelier::jobs {
namespace {

Time at(std::int64_t milliseconds) {
  return from_epoch_milliseconds(1'796'022'000'000 + milliseconds);
}

// What happens, when by our clock. Sequence numbers are relative to what was taken in, so that
// sequences that make sense are common, and repeated and missing events are there too.
struct Happening {
  int what = 0;
  std::int64_t now = 0;
  std::int64_t agent_time = 0;
  int sequence_step = 1;
  std::size_t kind = 0;
  int attempt_step = 0;
};

constexpr const char* kKinds[] = {"started",     "downloading", "training",    "uploading",
                                  "warning",     "completed",   "failed",      "stopped",
                                  "max-runtime", "surprise",    "interrupted", "saving"};

Event to_event(const Happening& happening, const TrainingJob& job) {
  switch (happening.what) {
    case 0:
      return Queued{happening.kind % 2 == 0 ? "full" : "still full"};
    case 1:
      return CapacityGranted{};
    case 2:
      return StopRequested{};
    case 3:
      return AgentLost{"killed"};
    case 5:
      return InterruptRequested{"room"};
    case 6:
      return WaitExceeded{};
    case 7:
      return WarmPoolTaken{happening.kind % 2 == 0 ? "next" : "another"};
    case 8:
      return WarmPoolEnded{};
    case 9:
      return KeepAliveChanged{std::chrono::seconds{happening.kind}};
    case 10:
      return LaunchDelayed{happening.kind % 2 == 0 ? "no process" : "no room"};
    default:
      return AgentEvent{
          static_cast<std::uint64_t>(std::max<std::int64_t>(
              1, static_cast<std::int64_t>(job.journal_sequence) + happening.sequence_step)),
          kKinds[happening.kind],
          happening.now % 2 == 0 ? "InternalServerError: said" : "said",
          happening.now % 3 == 0 ? R"({"ran_ms": 700})" : "",
          at(happening.agent_time),
          std::max(1, job.attempts.number + happening.attempt_step)};
  }
}

rc::Gen<Happening> any_happening() {
  return rc::gen::build<Happening>(
      rc::gen::set(&Happening::what, rc::gen::weightedElement<int>({{2, 0},
                                                                    {6, 1},
                                                                    {1, 2},
                                                                    {1, 3},
                                                                    {24, 4},
                                                                    {4, 5},
                                                                    {1, 6},
                                                                    {2, 7},
                                                                    {1, 8},
                                                                    {1, 9},
                                                                    {2, 10}})),
      rc::gen::set(&Happening::now, rc::gen::inRange<std::int64_t>(-5000, 5000)),
      rc::gen::set(&Happening::agent_time, rc::gen::inRange<std::int64_t>(-5000, 5000)),
      rc::gen::set(&Happening::sequence_step,
                   rc::gen::weightedElement<int>({{10, 1}, {2, 0}, {1, -1}, {1, 2}})),
      rc::gen::set(&Happening::kind, rc::gen::weightedElement<std::size_t>({{8, 0},
                                                                            {8, 1},
                                                                            {8, 2},
                                                                            {4, 3},
                                                                            {4, 4},
                                                                            {1, 5},
                                                                            {2, 6},
                                                                            {1, 7},
                                                                            {1, 8},
                                                                            {1, 9},
                                                                            {4, 10},
                                                                            {2, 11}})),
      rc::gen::set(&Happening::attempt_step,
                   rc::gen::weightedElement<int>({{12, 0}, {2, -1}, {1, 1}})));
}

std::vector<Happening> any_story() {
  return *rc::gen::container<std::vector<Happening>>(any_happening());
}

// Plays a story and calls `check(before, event, outcome)` at every step.
template <typename Check>
void play(const std::vector<Happening>& story, const Check& check) {
  TrainingJob job = new_training_job("a", at(0));
  job.terms.spot = story.size() % 4 != 0;
  job.terms.max_retries = static_cast<int>(story.size() % 3);
  job.terms.max_runtime = std::chrono::seconds{8};
  job.terms.price_per_hour = 3;
  job.terms.spot_price_per_hour = 1;
  if (!job.terms.spot && story.size() % 8 == 0) {
    job.warm.status = kWarmInUse;
    job.warm.name = "a.f00d";
    job.warm.keep_alive = std::chrono::seconds{2};
  }
  for (const Happening& happening : story) {
    const Event event = to_event(happening, job);
    Result<Step> outcome = advance(job, event, at(happening.now));
    check(job, event, outcome);
    if (outcome) job = outcome->job;
  }
}

RC_GTEST_PROP(TrainingJobProperty, ATerminalStateIsNeverLeft, ()) {
  play(any_story(), [](const TrainingJob& before, const Event&, const Result<Step>& outcome) {
    if (!before.terminal() || !outcome) return;
    RC_ASSERT(outcome->job.status == before.status);
    RC_ASSERT(outcome->job.transitions.size() == before.transitions.size());
    const bool ends_pool =
        before.warm.status == kWarmAvailable && outcome->job.warm.status == kWarmTerminated;
    RC_ASSERT(outcome->effects ==
              (ends_pool ? std::vector{Effect::kRemoveWarmPool} : std::vector<Effect>{}));
  });
}

RC_GTEST_PROP(TrainingJobProperty, TransitionsAreOnlyEverAppended, ()) {
  play(any_story(), [](const TrainingJob& before, const Event&, const Result<Step>& outcome) {
    if (!outcome) return;
    const auto& old = before.transitions;
    const auto& now = outcome->job.transitions;
    RC_ASSERT(now.size() >= old.size());
    for (std::size_t i = 0; i < old.size(); ++i) {
      RC_ASSERT(now[i].status == old[i].status);
      RC_ASSERT(now[i].message == old[i].message);
      RC_ASSERT(now[i].start == old[i].start);
      if (old[i].end) RC_ASSERT(now[i].end == old[i].end);
    }
    RC_ASSERT(now.back().status == outcome->job.secondary_status);
  });
}

RC_GTEST_PROP(TrainingJobProperty, TimesNeverGoBackWhateverTheClocksDo, ()) {
  play(any_story(), [](const TrainingJob& before, const Event&, const Result<Step>& outcome) {
    if (!outcome) return;
    const TrainingJob& job = outcome->job;
    RC_ASSERT(job.modified >= before.modified);
    RC_ASSERT(job.created <= job.modified);
    for (std::size_t i = 0; i < job.transitions.size(); ++i) {
      const Transition& transition = job.transitions[i];
      const bool last = i + 1 == job.transitions.size();
      RC_ASSERT(!transition.end || *transition.end >= transition.start);
      RC_ASSERT(transition.end.has_value() == (!last || job.terminal()));
      if (!last) RC_ASSERT(*transition.end == job.transitions[i + 1].start);
    }
    if (job.ended) RC_ASSERT(job.started.has_value() && *job.started <= *job.ended);
    if (job.started) RC_ASSERT(job.created <= *job.started);
  });
}

RC_GTEST_PROP(TrainingJobProperty, TheVersionCountsTheChanges, ()) {
  play(any_story(), [](const TrainingJob& before, const Event&, const Result<Step>& outcome) {
    if (!outcome) return;
    const bool moved = outcome->job.transitions.size() != before.transitions.size() ||
                       outcome->job.journal_sequence != before.journal_sequence ||
                       outcome->job.admitted != before.admitted ||
                       outcome->job.attempts.wait_exceeded != before.attempts.wait_exceeded ||
                       outcome->job.stop_requested != before.stop_requested ||
                       outcome->job.warm != before.warm;
    RC_ASSERT(outcome->job.version == before.version + (moved ? 1 : 0));
  });
}

RC_GTEST_PROP(TrainingJobProperty, AnAgentEventTakenInTwiceCountsOnce, ()) {
  play(any_story(), [](const TrainingJob&, const Event& event, const Result<Step>& outcome) {
    if (!outcome || !std::holds_alternative<AgentEvent>(event)) return;
    const Result<Step> again = advance(outcome->job, event, at(9000));
    RC_ASSERT(again.has_value());
    RC_ASSERT(again->job.version == outcome->job.version);
    RC_ASSERT(again->effects.empty());
  });
}

// After a crash between commit and effect, effects_due() of the record stands in for what was lost.
RC_GTEST_PROP(TrainingJobProperty, EveryEffectCanBeFoundAgainFromTheRecord, ()) {
  play(any_story(), [](const TrainingJob&, const Event&, const Result<Step>& outcome) {
    if (!outcome) return;
    const std::vector<Effect> due = effects_due(outcome->job);
    for (const Effect effect : outcome->effects) {
      RC_ASSERT(std::find(due.begin(), due.end(), effect) != due.end());
    }
  });
}

RC_GTEST_PROP(TrainingJobProperty, TheEndReleasesTheHostExactlyOnce, ()) {
  int released = 0;
  bool terminal = false;
  play(any_story(), [&](const TrainingJob&, const Event&, const Result<Step>& outcome) {
    if (!outcome) return;
    released += static_cast<int>(
        std::count(outcome->effects.begin(), outcome->effects.end(), Effect::kReleaseCapacity));
    terminal = outcome->job.terminal();
  });
  RC_ASSERT(released == (terminal ? 1 : 0));
}

// An attempt is begun by a share of the host alone, and ends once: none runs beside another.
RC_GTEST_PROP(TrainingJobProperty, AttemptsFollowOneAnother, ()) {
  play(any_story(), [](const TrainingJob& before, const Event& event, const Result<Step>& outcome) {
    if (!outcome) return;
    const TrainingJob& job = outcome->job;
    RC_ASSERT(job.attempts.number >= before.attempts.number);
    const auto* agent = std::get_if<AgentEvent>(&event);
    if (agent != nullptr && agent->attempt < before.attempts.number) {
      RC_ASSERT(job.version == before.version);
    }
    if (before.admitted && !job.admitted) {
      RC_ASSERT(job.attempts.number > before.attempts.number);
      RC_ASSERT(!job.attempts.interrupt_requested && !job.attempts.began);
      RC_ASSERT(job.secondary_status == "Interrupted" || job.secondary_status == "Restarting");
    }
    RC_ASSERT(job.attempts.retries <= job.terms.max_retries);
    if (!job.terms.spot) RC_ASSERT(!job.attempts.interrupt_requested);
  });
}

// Each second is counted once: the sum of all attempts is never more than the time since the start,
// or what agents measured; it never shrinks, and nobody is billed more than it.
RC_GTEST_PROP(TrainingJobProperty, NoSecondIsBilledTwice, ()) {
  std::chrono::milliseconds measured{0};
  play(any_story(), [&](const TrainingJob& before, const Event& event,
                        const Result<Step>& outcome) {
    if (!outcome) return;
    const TrainingJob& job = outcome->job;
    RC_ASSERT(job.attempts.trained >= before.attempts.trained);
    if (std::holds_alternative<AgentEvent>(event) && job.attempts.trained > before.attempts.trained)
      measured += std::chrono::milliseconds{700};
    if (job.started) RC_ASSERT(job.attempts.trained <= job.modified - *job.started + measured);
    if (before.terminal()) RC_ASSERT(job.attempts.trained == before.attempts.trained);
    const JobTimes times = job_times(job, job.modified);
    RC_ASSERT(times.billable <= times.training);
  });
}

// A host that is down for however long costs nobody more than the attempt was allowed to take, and
// nothing where the agent knows when it ended.
RC_GTEST_PROP(TrainingJobProperty, TheTimeOfAHostThatIsDownIsNotBilled, ()) {
  TrainingJob job = new_training_job("a", at(0));
  job.terms.max_runtime = std::chrono::seconds{*rc::gen::inRange(6, 500)};
  job.terms.max_retries = 1;
  const auto ran = *rc::gen::inRange<std::int64_t>(0, 4000);
  const auto down = *rc::gen::inRange<std::int64_t>(0, 2'000'000'000);
  const bool measured = *rc::gen::arbitrary<bool>();
  for (const Event& event :
       std::vector<Event>{CapacityGranted{}, AgentEvent{1, "downloading", "", "", at(1), 1},
                          AgentEvent{2, "training", "", "", at(2), 1},
                          AgentEvent{3, "failed", "InternalServerError: the agent was killed",
                                     measured ? "{\"ran_ms\":" + std::to_string(ran) + "}" : "",
                                     at(2 + ran + down), 1}}) {
    job = advance(job, event, at(2 + ran + down))->job;
  }
  const std::int64_t trained = job.attempts.trained.count();
  if (measured) {
    RC_ASSERT(trained <= ran + 1001);
    RC_ASSERT(job.secondary_status == "Restarting");
  }
  const std::chrono::milliseconds most = job.terms.max_runtime + std::chrono::minutes{11};
  RC_ASSERT(trained <= most.count());
}

// A pool goes one way, and ends once: taken by one job or terminated; a job that runs has it in
// use.
RC_GTEST_PROP(TrainingJobProperty, AWarmPoolHasOneUserAndOneEnd, ()) {
  const auto place = [](std::string_view status) {
    return status.empty() ? -1 : status == kWarmInUse ? 0 : status == kWarmAvailable ? 1 : 2;
  };
  play(any_story(),
       [&](const TrainingJob& before, const Event& event, const Result<Step>& outcome) {
         if (!outcome) return;
         const WarmPool& pool = outcome->job.warm;
         RC_ASSERT(pool.name == before.warm.name);
         RC_ASSERT(place(pool.status) >= place(before.warm.status));
         RC_ASSERT((place(pool.status) == 0) == (!pool.name.empty() && !outcome->job.terminal()));
         if (place(before.warm.status) == 2) RC_ASSERT(pool == before.warm);
         RC_ASSERT((pool.status == kWarmReused) == !pool.reused_by.empty());
         if (pool.status == kWarmAvailable && before.warm.status != kWarmAvailable) {
           RC_ASSERT(before.attempts.began && pool.keep_alive.count() > 0);
           RC_ASSERT(std::holds_alternative<AgentEvent>(event));
           RC_ASSERT(pool.available == outcome->job.ended);
         }
         if (place(pool.status) == 2) {
           RC_ASSERT(pool.retained.count() >= 0 && pool.retained <= std::chrono::seconds{10});
           RC_ASSERT(pool.available || pool.retained.count() == 0);
         }
         const bool of_the_pool = std::holds_alternative<WarmPoolTaken>(event) ||
                                  std::holds_alternative<WarmPoolEnded>(event);
         if (!of_the_pool) return;
         const Result<Step> again = advance(outcome->job, event, at(9000));
         RC_ASSERT(again.has_value());
         RC_ASSERT(again->job.version == outcome->job.version);
       });
}

// What is not at its end is in the queue, or has an agent due: it cannot hang.
RC_GTEST_PROP(TrainingJobProperty, NoJobIsLost, ()) {
  play(any_story(), [](const TrainingJob&, const Event&, const Result<Step>& outcome) {
    if (!outcome || outcome->job.terminal()) return;
    const TrainingJob& job = outcome->job;
    if (!job.admitted) {
      RC_ASSERT(!job.stop_requested && !job.attempts.wait_exceeded);
      RC_ASSERT(advance(job, CapacityGranted{}, at(9000))->job.admitted);
      return;
    }
    const AgentEvent end{1, "completed", "", "", at(9000), job.attempts.number};
    RC_ASSERT(advance(job, end, at(9000))->job.terminal());
  });
}

}  // namespace
}  // namespace atelier::jobs
