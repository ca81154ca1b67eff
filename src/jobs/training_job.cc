#include "jobs/training_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/json.h"

namespace atelier::jobs {
namespace {

// DescribeTrainingJob's FailureReason holds this many characters.
constexpr std::size_t kMaxReasonCharacters = 1024;
// A program that warns in a loop must not grow the record without end.
constexpr std::size_t kMaxWarnings = 100;
// An attempt's time by the agent's steady clock and by wall clock: further apart, one has jumped.
constexpr std::chrono::seconds kClockSlack{1};
// What comes after MaxRuntimeInSeconds: the program's time to end, and a part of the delivery.
constexpr std::chrono::minutes kBeyondRuntime{10};
// A hostile journal's figure must not make sums overflow.
constexpr std::chrono::milliseconds kMaxAttempt = std::chrono::hours{24 * 400};
// Of FailureReason: the class of failures that RetryStrategy is for.
constexpr std::string_view kOurFault = "InternalServerError";

// At most `limit` characters of UTF-8.
std::string clipped(std::string text, std::size_t limit) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts && limit-- == 0) {
      text.resize(i);
      break;
    }
  }
  return text;
}

void move_to(TrainingJob& job, std::string secondary, std::string message, Time at) {
  if (!job.transitions.empty()) job.transitions.back().end = at;
  job.secondary_status = secondary;
  job.modified = at;
  job.transitions.push_back({std::move(secondary), std::move(message), at, std::nullopt});
}

// The last transition; nothing comes after it.
void finish(TrainingJob& job, std::string status, std::string secondary, std::string message,
            Time at) {
  job.status = std::move(status);
  move_to(job, std::move(secondary), std::move(message), at);
  job.transitions.back().end = at;
  if (job.started) job.ended = at;
}

// A pool that holds more than the volume would fail whatever job comes next.
bool is_beyond_volume(const AgentEvent& event) {
  const Result<json::value> detail = parse_json(event.detail_json);
  return detail && find_bool(*detail, "beyond_volume").value_or(false);
}

// The job has ended. Instances that were lost, or never there, are none to keep.
void leave_pool(TrainingJob& job, bool had_instances) {
  WarmPool& pool = job.warm;
  if (pool.status != kWarmInUse) return;
  const bool kept =
      had_instances && pool.keep_alive.count() > 0 && !job.failure_reason.starts_with(kOurFault);
  pool.status = kept ? kWarmAvailable : kWarmTerminated;
  if (kept) pool.available = job.modified;
}

void end_pool(TrainingJob& job, std::string_view status, Time at) {
  job.warm.retained = held_for_nobody(job.warm, at);
  job.warm.status = status;
  job.modified = at;
}

// The present attempt is over: its time is added up, and its share of the host is given back.
// `ran` is what the agent measured by a clock that does not jump; where wall time agrees with it,
// wall time counts, so that the sum is that of the transitions. Where it measured nothing, wall
// time may be that of a host that was down: then no more counts than the attempt was allowed to
// take.
void end_attempt(TrainingJob& job, std::optional<std::chrono::milliseconds> ran, Time at) {
  Attempts& attempts = job.attempts;
  if (attempts.began) {
    std::chrono::milliseconds time = at - *attempts.began;
    if (!ran) time = std::min<std::chrono::milliseconds>(time, runtime_left(job) + kBeyondRuntime);
    if (ran && std::chrono::abs(*ran - time) > kClockSlack) time = *ran;
    attempts.trained += time;
  }
  attempts.began.reset();
  attempts.admitted.reset();
  attempts.interrupt_requested = false;
}

void fail(TrainingJob& job, std::string reason, Time at) {
  job.failure_reason = clipped(std::move(reason), kMaxReasonCharacters);
  finish(job, "Failed", "Failed", "Training job failed", at);
}

void warn(TrainingJob& job, std::string message, Time at) {
  job.modified = at;
  message = clipped(std::move(message), kMaxReasonCharacters);
  if (std::ranges::find(job.warnings, message) != job.warnings.end()) return;  // said already
  if (job.warnings.size() < kMaxWarnings) {
    job.warnings.push_back(std::move(message));
  } else if (job.warnings.size() == kMaxWarnings) {
    job.warnings.push_back(
        fmt::format("More than {} warnings: the rest is left out.", kMaxWarnings));
  }
}

// Gives the time that the attempt took, where the agent says so.
std::optional<std::chrono::milliseconds> take_in_detail(TrainingJob& job, const AgentEvent& event,
                                                        Time at) {
  std::optional<std::chrono::milliseconds> ran;
  if (event.detail_json.empty()) return ran;
  const Result<json::value> detail = parse_json(event.detail_json);
  if (!detail) return ran;  // the agent's words are kept; its extras are not needed to go on
  if (const auto milliseconds = find_int(*detail, "ran_ms"); milliseconds && *milliseconds >= 0) {
    ran = std::chrono::milliseconds{std::min(*milliseconds, kMaxAttempt.count())};
  }
  if (auto limits = find_string(*detail, "limits")) job.limits = *std::move(limits);
  const json::object* metrics = find_object(*detail, "final_metrics");
  if (metrics == nullptr) return ran;
  job.final_metrics.clear();
  for (const auto& [name, value] : *metrics) {
    if (value.is_number()) job.final_metrics.push_back({name, value.to_number<double>(), at});
  }
  return ran;
}

// It counts as a change also where a stop hides the transition: what comes later must not end
// before.
void set_started(TrainingJob& job, Time at) {
  if (!job.attempts.began) job.attempts.began = at;
  if (job.started) return;
  job.started = at;
  job.modified = at;
}

// Being stopped: that stays what people see.
bool ending(const TrainingJob& job) { return job.stop_requested || job.attempts.wait_exceeded; }

// Its results are uploaded, whatever stop has come since.
bool program_has_ended(const TrainingJob& job) {
  const auto last = std::find_if_not(
      job.transitions.rbegin(), job.transitions.rend(),
      [](const Transition& transition) { return transition.status == "Stopping"; });
  return last != job.transitions.rend() && last->status == "Uploading";
}

void agent_started(TrainingJob& job, const std::string&, Time at) {
  if (ending(job)) return;
  move_to(job, "Starting", "Preparing the instances for training", at);
}

void downloading(TrainingJob& job, const std::string& text, Time at) {
  set_started(job, at);
  if (ending(job)) return;
  move_to(job, "Downloading", text.empty() ? "Downloading input data" : text, at);
}

void training(TrainingJob& job, const std::string& text, Time at) {
  set_started(job, at);
  if (ending(job)) return;
  move_to(job, "Training",
          text.empty() ? "Training image download completed. Training in progress." : text, at);
}

// What an interrupted program has left is on its way; that it was interrupted shows when it is
// there.
void saving(TrainingJob& job, const std::string&, Time at) { job.modified = at; }

void uploading(TrainingJob& job, const std::string& text, Time at) {
  set_started(job, at);
  move_to(job, "Uploading", text.empty() ? "Uploading generated training model" : text, at);
}

// A stop that comes after the program's own end has changed nothing: the job is complete.
void completed(TrainingJob& job, const std::string&, Time at) {
  if (!job.started) job.started = at;
  finish(job, "Completed", "Completed", "Training job completed", at);
}

void stopped(TrainingJob& job, const std::string& text, Time at) {
  if (job.stop_requested || !job.attempts.wait_exceeded) {
    finish(job, "Stopped", "Stopped",
           clipped(text.empty() ? "Training job stopped" : "Training job stopped: " + text,
                   kMaxReasonCharacters),
           at);
  } else {
    finish(job, "Stopped", "MaxWaitTimeExceeded",
           fmt::format("Training job exceeded its MaxWaitTimeInSeconds of {}",
                       job.terms.max_wait.count()),
           at);
  }
}

void max_runtime(TrainingJob& job, const std::string& text, Time at) {
  if (!job.started) job.started = at;
  finish(job, "Stopped", "MaxRuntimeExceeded",
         text.empty() ? "Training job runtime exceeded MaxRuntimeInSeconds provided" : text, at);
}

// Back to the queue, for one more attempt.
void wait_again(TrainingJob& job, std::string secondary, std::string message, Time at) {
  job.admitted = false;
  ++job.attempts.number;
  move_to(job, std::move(secondary), clipped(std::move(message), kMaxReasonCharacters), at);
}

void interrupted(TrainingJob& job, const std::string& text, Time at) {
  // What was asked of the job meanwhile comes first; an interrupted attempt has nothing to upload.
  if (ending(job)) return stopped(job, "", at);
  if (job.attempts.trained >= job.terms.max_runtime) return max_runtime(job, "", at);
  ++job.attempts.interruptions;
  wait_again(job, "Interrupted", text.empty() ? "The training job was interrupted" : text, at);
}

// RetryStrategy is for what is not the program's fault.
void failed(TrainingJob& job, const std::string& text, Time at) {
  std::string reason = text.empty() ? "InternalServerError: the agent gave no reason" : text;
  const bool again = reason.starts_with(kOurFault) && !ending(job) &&
                     job.attempts.retries < job.terms.max_retries &&
                     job.attempts.trained < job.terms.max_runtime;
  if (!again) return fail(job, std::move(reason), at);
  ++job.attempts.retries;
  wait_again(job, "Restarting",
             fmt::format("Restarting the training job, retry {} of {}: {}", job.attempts.retries,
                         job.terms.max_retries, reason),
             at);
}

// One handler a kind of journal event. `text` is what the agent said.
struct Handler {
  std::string_view kind;
  bool ends_attempt;
  void (*apply)(TrainingJob& job, const std::string& text, Time at);
};
constexpr std::array kHandlers = {
    Handler{"started", false, agent_started},
    Handler{"downloading", false, downloading},
    Handler{"training", false, training},
    Handler{"uploading", false, uploading},
    Handler{"saving", false, saving},
    Handler{"completed", true, completed},
    Handler{"failed", true, failed},
    Handler{"stopped", true, stopped},
    Handler{"max-runtime", true, max_runtime},
    Handler{"interrupted", true, interrupted},
    Handler{"warning", false,
            [](TrainingJob& job, const std::string& text, Time at) { warn(job, text, at); }},
};

Error ended_already(const TrainingJob& job) {
  return Error{
      Code::kFailedPrecondition,
      fmt::format("training job '{}' has already ended: its status is {}", job.name, job.status)};
}

Error no_warm_pool(const TrainingJob& job) {
  return Error{Code::kFailedPrecondition,
               job.warm.status.empty()
                   ? fmt::format("training job '{}' has no warm pool: it was created without "
                                 "KeepAlivePeriodInSeconds",
                                 job.name)
                   : fmt::format("training job '{}' is {} and its warm pool is {}, not Available",
                                 job.name, job.status, job.warm.status)};
}

struct Advance {
  TrainingJob& job;
  Time now;  // never before job.modified

  // Each returns whether the record changed.
  Result<bool> operator()(const Queued& event) const {
    if (job.admitted || job.terminal()) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("training job '{}' is {}: it does not wait for the host", job.name,
                               job.secondary_status)};
    }
    if (job.secondary_status == "Pending" && job.transitions.back().message == event.why) {
      return false;
    }
    move_to(job, "Pending", event.why, now);
    return true;
  }

  Result<bool> operator()(const CapacityGranted& event) const {
    if (job.terminal()) return ended_already(job);
    if (job.admitted) return false;
    job.admitted = true;
    job.attempts.admitted = now;
    if (!event.pool.empty()) {
      job.warm.name = event.pool;
      job.warm.of = event.pool_of;
      job.warm.status = kWarmInUse;
    }
    move_to(job, "Starting", "Launching requested ML instances", now);
    return true;
  }

  Result<bool> operator()(const AgentEvent& event) const {
    if (event.attempt < job.attempts.number) return false;  // of an attempt that is over
    const auto* handler = std::ranges::find(kHandlers, event.kind, &Handler::kind);
    const bool known = handler != kHandlers.end();
    const bool ends = known && handler->ends_attempt;
    const bool seen = event.sequence <= job.journal_sequence;
    if (seen && (!ends || job.terminal())) return false;
    if (job.terminal()) return ended_already(job);
    // An event's own time is the truer one (we may have been away when it happened), as far as it
    // fits: not before what is recorded, and not in the future.
    const Time at = std::clamp(event.time, job.modified, now);
    if (event.sequence > job.journal_sequence + 1) {
      warn(job,
           fmt::format("events {} to {} of the agent's journal are lost", job.journal_sequence + 1,
                       event.sequence - 1),
           at);
    }
    job.journal_sequence = std::max(job.journal_sequence, event.sequence);
    job.admitted = true;
    job.attempts.number = event.attempt;
    const auto ran = take_in_detail(job, event, at);
    if (ends) end_attempt(job, ran, at);
    if (known) {
      handler->apply(job, event.message, at);
    } else {
      warn(job,
           fmt::format("the agent reports '{}', which this version does not know: {}", event.kind,
                       event.message),
           at);
    }
    return true;
  }

  Result<bool> operator()(const StopRequested& event) const {
    if (job.terminal()) return ended_already(job);
    if (job.stop_requested) return stop_again(event);
    job.stop_requested = true;
    job.attempts.stop_call = event.call;
    job.status = "Stopping";
    move_to(job, "Stopping", "Stopping the training job", now);
    if (!job.admitted) finish(job, "Stopped", "Stopped", "Training job stopped", now);
    return true;
  }

  // Clients that stop a job twice without meaning it do so while its program still ends.
  [[nodiscard]] bool stop_again(const StopRequested& event) const {
    Attempts& attempts = job.attempts;
    const bool retried = !event.call.empty() && event.call == attempts.stop_call;
    if (retried || attempts.stopped_again || !program_has_ended(job)) return false;
    attempts.stopped_again = true;
    move_to(job, "Uploading",
            "Stopped again: what is not in S3 yet is not uploaded and stays on the host", now);
    return true;
  }

  Result<bool> operator()(const AgentLost& event) const {
    if (job.terminal()) return false;
    if (!job.admitted) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("training job '{}' has no agent to lose", job.name)};
    }
    if (job.stop_requested && job.journal_sequence == 0) {
      // Nothing of the job ever ran, so there is nothing that the stop could have cut short.
      finish(job, "Stopped", "Stopped", "Training job stopped", now);
    } else {
      end_attempt(job, event.ran, now);
      failed(job, fmt::format("{}: {}", kOurFault, event.cause), now);
    }
    return true;
  }

  Result<bool> operator()(const InterruptRequested& event) const {
    if (job.terminal()) return ended_already(job);
    if (!job.terms.spot) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("training job '{}' can not be interrupted: it was not created with "
                               "EnableManagedSpotTraining",
                               job.name)};
    }
    if (!job.admitted || ending(job) || job.secondary_status == "Uploading") {
      return Error{Code::kFailedPrecondition,
                   fmt::format("training job '{}' can not be interrupted: it is {}", job.name,
                               job.secondary_status)};
    }
    if (job.attempts.interrupt_requested) return false;
    job.attempts.interrupt_requested = true;
    move_to(job, job.secondary_status,
            clipped("Spot interruption notice: " + event.why, kMaxReasonCharacters), now);
    return true;
  }

  Result<bool> operator()(const LaunchDelayed& event) const {
    // What people are told of a stop stays in sight.
    if (job.terminal() || !job.admitted || ending(job)) return false;
    const std::string message = clipped(
        "Waiting for the host to start the job's agent: " + event.why, kMaxReasonCharacters);
    if (job.transitions.back().message == message) return false;
    move_to(job, job.secondary_status, message, now);
    return true;
  }

  Result<bool> operator()(const WaitExceeded&) const {
    if (job.terminal()) return ended_already(job);
    if (ending(job)) return false;
    job.attempts.wait_exceeded = true;
    if (!job.admitted) {
      stopped(job, "", now);
      return true;
    }
    // TrainingJobStatus stays InProgress: some clients take Stopping, which they did not ask for,
    // for an end.
    move_to(job, "Stopping", "Stopping the training job: MaxWaitTimeInSeconds is over", now);
    return true;
  }

  Result<bool> operator()(const WarmPoolTaken& event) const {
    if (job.warm.status == kWarmReused && job.warm.reused_by == event.by) return false;
    if (job.warm.status != kWarmAvailable) return no_warm_pool(job);
    job.warm.reused_by = event.by;
    end_pool(job, kWarmReused, now);
    return true;
  }

  Result<bool> operator()(const WarmPoolEnded&) const {
    if (job.warm.status == kWarmTerminated) return false;
    if (job.warm.status != kWarmAvailable) return no_warm_pool(job);
    end_pool(job, kWarmTerminated, now);
    return true;
  }

  Result<bool> operator()(const KeepAliveChanged& event) const {
    WarmPool& pool = job.warm;
    if (pool.status != kWarmInUse && pool.status != kWarmAvailable) return no_warm_pool(job);
    if (pool.keep_alive == event.keep_alive) return false;
    if (pool.status == kWarmAvailable && event.keep_alive.count() == 0) {
      end_pool(job, kWarmTerminated, now);
    }
    pool.keep_alive = event.keep_alive;
    job.modified = now;
    return true;
  }
};

}  // namespace

TrainingJob new_training_job(std::string name, Time now) {
  TrainingJob job;
  job.name = std::move(name);
  job.created = now;
  move_to(job, "Starting", "Starting the training job", now);
  return job;
}

std::vector<Effect> effects_due(const TrainingJob& job) {
  if (job.terminal()) {
    std::vector<Effect> due = {Effect::kReleaseCapacity};
    if (job.warm.status == kWarmTerminated) due.push_back(Effect::kRemoveWarmPool);
    return due;
  }
  if (!job.admitted) return {};
  std::vector<Effect> due = {Effect::kLaunchAgent};
  if (ending(job)) due.push_back(Effect::kStopAgent);
  if (job.attempts.interrupt_requested) due.push_back(Effect::kInterruptAgent);
  return due;
}

Result<Step> advance(TrainingJob job, const Event& event, Time now) {
  const bool was_terminal = job.terminal();
  const std::string pool_was = job.warm.status;
  const auto* of_agent = std::get_if<AgentEvent>(&event);
  const bool had_instances =
      of_agent != nullptr && job.attempts.began.has_value() && !is_beyond_volume(*of_agent);
  const bool changed = TRY(std::visit(Advance{job, std::max(now, job.modified)}, event));
  if (job.terminal() && !was_terminal) leave_pool(job, had_instances);
  if (changed) ++job.version;
  Step step{std::move(job), {}};
  if (step.job.terminal()) {
    if (!was_terminal) step.effects = {Effect::kReleaseCapacity};
    if (step.job.warm.status == kWarmTerminated && pool_was != kWarmTerminated) {
      step.effects.push_back(Effect::kRemoveWarmPool);
    }
  } else if (std::holds_alternative<CapacityGranted>(event)) {
    step.effects = {Effect::kLaunchAgent};
  } else if (std::holds_alternative<StopRequested>(event) ||
             std::holds_alternative<WaitExceeded>(event)) {
    step.effects = {Effect::kStopAgent};
  } else if (std::holds_alternative<InterruptRequested>(event)) {
    step.effects = {Effect::kInterruptAgent};
  }
  return step;
}

}  // namespace atelier::jobs
