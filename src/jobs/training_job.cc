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

void take_in_detail(TrainingJob& job, const AgentEvent& event, Time at) {
  if (event.detail_json.empty()) return;
  const Result<json::value> detail = parse_json(event.detail_json);
  if (!detail) return;  // the agent's words are kept; its extras are not needed to go on
  if (auto limits = find_string(*detail, "limits")) job.limits = *std::move(limits);
  const json::object* metrics = find_object(*detail, "final_metrics");
  if (metrics == nullptr) return;
  job.final_metrics.clear();
  for (const auto& [name, value] : *metrics) {
    if (value.is_number()) job.final_metrics.push_back({name, value.to_number<double>(), at});
  }
}

// It counts as a change also where a stop hides the transition: what comes later must not end
// before.
void set_started(TrainingJob& job, Time at) {
  if (job.started) return;
  job.started = at;
  job.modified = at;
}

// One handler a kind of journal event. `text` is what the agent said.
struct Handler {
  std::string_view kind;
  void (*apply)(TrainingJob& job, const std::string& text, Time at);
};

void agent_started(TrainingJob& job, const std::string&, Time at) {
  if (job.stop_requested) return;  // Stopping stays what people see
  move_to(job, "Starting", "Preparing the instances for training", at);
}

void downloading(TrainingJob& job, const std::string& text, Time at) {
  set_started(job, at);
  if (job.stop_requested) return;
  move_to(job, "Downloading", text.empty() ? "Downloading input data" : text, at);
}

void training(TrainingJob& job, const std::string& text, Time at) {
  set_started(job, at);
  if (job.stop_requested) return;
  move_to(job, "Training",
          text.empty() ? "Training image download completed. Training in progress." : text, at);
}

void uploading(TrainingJob& job, const std::string& text, Time at) {
  set_started(job, at);
  move_to(job, "Uploading", text.empty() ? "Uploading generated training model" : text, at);
}

// A stop that comes after the program's own end has changed nothing: the job is complete.
void completed(TrainingJob& job, const std::string&, Time at) {
  set_started(job, at);
  finish(job, "Completed", "Completed", "Training job completed", at);
}

void failed(TrainingJob& job, const std::string& text, Time at) {
  fail(job, text.empty() ? "InternalServerError: the agent gave no reason" : text, at);
}

void stopped(TrainingJob& job, const std::string&, Time at) {
  finish(job, "Stopped", "Stopped", "Training job stopped", at);
}

void max_runtime(TrainingJob& job, const std::string& text, Time at) {
  set_started(job, at);
  finish(job, "Stopped", "MaxRuntimeExceeded",
         text.empty() ? "Training job runtime exceeded MaxRuntimeInSeconds provided" : text, at);
}

constexpr std::array kHandlers = {
    Handler{"started", agent_started},
    Handler{"downloading", downloading},
    Handler{"training", training},
    Handler{"uploading", uploading},
    Handler{"completed", completed},
    Handler{"failed", failed},
    Handler{"stopped", stopped},
    Handler{"max-runtime", max_runtime},
    Handler{"warning",
            [](TrainingJob& job, const std::string& text, Time at) { warn(job, text, at); }},
};

Error ended_already(const TrainingJob& job) {
  return Error{
      Code::kFailedPrecondition,
      fmt::format("training job '{}' has already ended: its status is {}", job.name, job.status)};
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

  Result<bool> operator()(const CapacityGranted&) const {
    if (job.terminal()) return ended_already(job);
    if (job.admitted) return false;
    job.admitted = true;
    move_to(job, "Starting", "Launching requested ML instances", now);
    return true;
  }

  Result<bool> operator()(const AgentEvent& event) const {
    if (event.sequence <= job.journal_sequence) return false;
    if (job.terminal()) return ended_already(job);
    if (event.sequence != job.journal_sequence + 1) {
      return Error{Code::kDataLoss,
                   fmt::format("training job '{}': the journal goes from event {} to {}", job.name,
                               job.journal_sequence, event.sequence)};
    }
    // An event's own time is the truer one (we may have been away when it happened), as far as it
    // fits: not before what is recorded, and not in the future.
    const Time at = std::clamp(event.time, job.modified, now);
    job.journal_sequence = event.sequence;
    job.admitted = true;
    take_in_detail(job, event, at);
    const auto* handler = std::ranges::find(kHandlers, event.kind, &Handler::kind);
    if (handler != kHandlers.end()) {
      handler->apply(job, event.message, at);
    } else {
      warn(job,
           fmt::format("the agent reports '{}', which this version does not know: {}", event.kind,
                       event.message),
           at);
    }
    return true;
  }

  Result<bool> operator()(const StopRequested&) const {
    if (job.terminal()) return ended_already(job);
    if (job.stop_requested) return false;
    job.stop_requested = true;
    job.status = "Stopping";
    move_to(job, "Stopping", "Stopping the training job", now);
    if (!job.admitted) finish(job, "Stopped", "Stopped", "Training job stopped", now);
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
      fail(job, "InternalServerError: " + event.cause, now);
    }
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
  if (job.terminal()) return {Effect::kReleaseCapacity};
  if (!job.admitted) return {};
  if (job.stop_requested) return {Effect::kLaunchAgent, Effect::kStopAgent};
  return {Effect::kLaunchAgent};
}

Result<Step> advance(TrainingJob job, const Event& event, Time now) {
  const bool was_terminal = job.terminal();
  const bool changed = TRY(std::visit(Advance{job, std::max(now, job.modified)}, event));
  if (changed) ++job.version;
  Step step{std::move(job), {}};
  if (step.job.terminal()) {
    if (!was_terminal) step.effects = {Effect::kReleaseCapacity};
  } else if (std::holds_alternative<CapacityGranted>(event)) {
    step.effects = {Effect::kLaunchAgent};
  } else if (std::holds_alternative<StopRequested>(event)) {
    step.effects = {Effect::kStopAgent};
  }
  return step;
}

}  // namespace atelier::jobs
