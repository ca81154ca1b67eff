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
  double vcpus = 0;             // what the job holds of the host while it runs
  double memory_gib = 0;
  int gpus = 0;
  std::string log_stream;  // "job/algo-1-1796022355"
  bool admitted = false;   // it has its share of the host: an agent is due, or was
  bool stop_requested = false;
  std::uint64_t journal_sequence = 0;  // the last agent event that was taken in
  std::uint64_t version = 0;           // of the record: each transition adds one

  [[nodiscard]] bool terminal() const {
    return status == "Completed" || status == "Failed" || status == "Stopped";
  }
};

// A job at its first moment: InProgress, Starting. The caller fills in what the request says.
TrainingJob new_training_job(std::string name, Time now);

// What can happen to a job.
struct Queued {
  std::string why;
};                          // the host is full: what is missing and who uses it
struct CapacityGranted {};  // the job has its share of the host
struct AgentEvent {         // from the journal (agent/spec.h)
  std::uint64_t sequence = 0;
  std::string kind;
  std::string message;
  std::string detail_json;
  Time time{};
};
struct StopRequested {};
struct AgentLost {
  std::string cause;
};  // the agent died without a last event, or could not be started
using Event = std::variant<Queued, CapacityGranted, AgentEvent, StopRequested, AgentLost>;

// What is to be done after the commit; each may be done twice without harm.
enum class Effect { kLaunchAgent, kStopAgent, kReleaseCapacity };

struct Step {
  TrainingJob job;
  std::vector<Effect> effects;
};

// The next state. The version goes up by one exactly when something changed; times never go back,
// whatever `now` and the agent's clock say. kFailedPrecondition when the event does not fit the
// state (a stop of an ended job, say), kDataLoss when events of the journal are missing; an agent
// event that was taken in before changes nothing.
Result<Step> advance(TrainingJob job, const Event& event, Time now);

// The effects that the state of a job asks for, however it came to be: what is done again after a
// restart, and whenever an effect may have failed.
std::vector<Effect> effects_due(const TrainingJob& job);

}  // namespace atelier::jobs
