// A training job as a record, and the state machine that moves it: a pure function without clocks,
// processes or disks. Status names and messages are SageMaker's (DescribeTrainingJob).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace atelier::jobs {

struct Transition {
  std::string status;  // SecondaryStatus
  std::string message;
  Time start{};
  std::optional<Time> end;  // absent on the current one
};

struct FinalMetric {
  std::string name;
  double value = 0;
  Time time{};
};

struct TrainingJob {
  std::string name;
  std::string arn;
  std::string request_json;           // CreateTrainingJob's body, as it came
  std::string invocation_id;          // amz-sdk-invocation-id of the create, for retries
  std::string status = "InProgress";  // TrainingJobStatus
  std::string secondary_status = "Starting";
  std::string failure_reason;
  std::vector<Transition> transitions;
  std::vector<std::string> warnings;
  std::vector<FinalMetric> final_metrics;
  Time created{};
  Time modified{};
  std::optional<Time> started;  // TrainingStartTime
  std::optional<Time> ended;    // TrainingEndTime
  std::string model_uri;        // ModelArtifacts.S3ModelArtifacts
  std::string limits;           // which limits are in force, in words
  bool stop_requested = false;
  std::uint64_t journal_sequence = 0;  // the last agent event that was taken in
  std::uint64_t version = 0;           // of the record: each transition adds one

  [[nodiscard]] bool terminal() const {
    return status == "Completed" || status == "Failed" || status == "Stopped";
  }
};

// What can happen to a job.
struct Queued {
  std::string why;
};  // the host is full
struct AgentLaunched {};
struct AgentEvent {  // from the journal (agent/spec.h)
  std::uint64_t sequence = 0;
  std::string kind;
  std::string message;
  std::string detail_json;
  Time time{};
};
struct StopRequested {};
struct AgentLost {
  std::string cause;
};  // the agent died without a last event
using Event = std::variant<Queued, AgentLaunched, AgentEvent, StopRequested, AgentLost>;

// What is to be done after the commit; each may be done twice without harm.
enum class Effect { kLaunchAgent, kStopAgent, kReleaseCapacity };

struct Step {
  TrainingJob job;
  std::vector<Effect> effects;
};

// kFailedPrecondition when the event does not fit the state (a stop of an ended job, say); an agent
// event that was taken in before changes nothing.
Result<Step> advance(TrainingJob job, const Event& event, Time now);

}  // namespace atelier::jobs
