// A training job as a record, and the state machine that moves it: a pure function without clocks,
// processes or disks. Status names and messages are SageMaker's (DescribeTrainingJob).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace atelier::jobs {

using std::chrono_literals::operator""h;

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

// What the request asks of time, attempts and money; fixed with the create, so that a later change
// of the instance table changes no old job.
struct Terms {
  bool spot = false;                      // EnableManagedSpotTraining: may be interrupted
  std::chrono::seconds max_runtime{24h};  // of all attempts together
  std::chrono::seconds max_wait{0};       // from the create to the end; 0: no limit
  int max_retries = 0;                    // RetryStrategy.MaximumRetryAttempts
  std::string instance_type;
  int instance_count = 1;
  double price_per_hour = 0;       // of one instance, on demand
  double spot_price_per_hour = 0;  // of one instance, as spot
  std::string currency;
};

// A job runs in attempts: the first, and one more after each interruption and each retry.
struct Attempts {
  int number = 1;  // of the one that runs, else of the next
  int interruptions = 0;
  int retries = 0;
  bool interrupt_requested = false;      // the one that runs has been warned, or is about to be
  bool wait_exceeded = false;            // MaxWaitTimeInSeconds is over: it is being ended
  std::string stop_call;                 // which call it was that asked for the stop; may be empty
  bool stopped_again = false;            // what of its results is not in S3 yet stays on the host
  std::optional<Time> admitted;          // when the one that runs got its share of the host
  std::optional<Time> began;             // when its time began to count: with the download
  std::chrono::milliseconds trained{0};  // of those that have ended; waiting between them is none
};

// What KeepAlivePeriodInSeconds keeps of a job's instances for a matching job that follows
// (warm_pools.h): their share of the host, and a folder that both jobs' programs write to. The pool
// of a job is one with those of the jobs that it took it over from; only the last of them holds it.
struct WarmPool {
  // WarmPoolStatus: InUse until the job has ended, then Available, Reused or Terminated; the last
  // two are final. Empty: the job has none.
  std::string status;
  std::string name;                       // of its folder; no other pool ever has it
  std::string owner;                      // the maker's user id; another person may get the name
  std::chrono::seconds keep_alive{0};     // after the end of the job
  std::optional<Time> available;          // since when nobody has used it
  std::chrono::milliseconds retained{0};  // how long it was Available
  std::string of;                         // the job that it was taken over from; empty: made new
  std::string reused_by;
  bool operator==(const WarmPool&) const = default;
};
inline constexpr std::string_view kWarmInUse = "InUse";
inline constexpr std::string_view kWarmAvailable = "Available";
inline constexpr std::string_view kWarmReused = "Reused";
inline constexpr std::string_view kWarmTerminated = "Terminated";

struct TrainingJob {
  std::uint64_t id = 0;  // by order of creation; the store gives it
  std::string name;
  std::string arn;
  std::string request_json;           // CreateTrainingJob's body, as it came
  std::string invocation_id;          // amz-sdk-invocation-id of the create, for retries
  std::string created_by;             // the caller (job_access.h); empty: nobody knows
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
  Terms terms;
  Attempts attempts;
  WarmPool warm;
  std::uint64_t version = 0;  // of the record: each transition adds one

  [[nodiscard]] bool terminal() const {
    return status == "Completed" || status == "Failed" || status == "Stopped";
  }
};

// A job at its first moment: InProgress, Starting. The caller fills in what the request says.
TrainingJob new_training_job(std::string name, Time now);

// What can happen to a job.
struct Queued {
  std::string why;
};                        // the host is full: what is missing and who uses it
struct CapacityGranted {  // the job has its share of the host
  std::string pool{};     // and with it the warm pool of that name,
  std::string pool_of{};  // which this job leaves to it
};
struct AgentEvent {  // from the journal (agent/spec.h)
  std::uint64_t sequence = 0;
  std::string kind;
  std::string message;
  std::string detail_json;
  Time time{};
  int attempt = 1;
};
// Another call while results are uploaded, the program having ended, gives that up.
struct StopRequested {
  std::string call{};  // the same for a client's retries, which are one call; empty: of its own
};
struct AgentLost {  // the agent died without a last event, or could not be started
  std::string cause;
  std::optional<std::chrono::milliseconds> ran{};  // the attempt, as an agent has last noted it
};
struct InterruptRequested {  // a spot job is to give its share back
  std::string why;
};
struct WaitExceeded {};  // MaxWaitTimeInSeconds is over
struct WarmPoolTaken {   // a matching job has come
  std::string by;
};
struct WarmPoolEnded {};   // its time is over, or its room is wanted
struct KeepAliveChanged {  // UpdateTrainingJob; 0 ends an Available pool
  std::chrono::seconds keep_alive{0};
};
struct LaunchDelayed {  // the host has not what an agent needs; it is tried again
  std::string why;
};
using Event =
    std::variant<Queued, CapacityGranted, AgentEvent, StopRequested, AgentLost, InterruptRequested,
                 WaitExceeded, WarmPoolTaken, WarmPoolEnded, KeepAliveChanged, LaunchDelayed>;

// What is to be done after the commit; each may be done twice without harm.
enum class Effect { kLaunchAgent, kStopAgent, kInterruptAgent, kReleaseCapacity, kRemoveWarmPool };

struct Step {
  TrainingJob job;
  std::vector<Effect> effects;
};

// The next state. The version goes up by one exactly when something changed; times never go back,
// whatever `now` and the agent's clock say. kFailedPrecondition when the event does not fit the
// state (a stop of an ended job, say). An agent event that was taken in before, or is of an attempt
// that is over, changes nothing; the end of the present attempt counts whatever its sequence, so
// that a journal which lost its tail with the power cannot leave a job hanging.
Result<Step> advance(TrainingJob job, const Event& event, Time now);

// The effects that the state of a job asks for, however it came to be: what is done again after a
// restart, and whenever an effect may have failed.
std::vector<Effect> effects_due(const TrainingJob& job);

// Seconds per instance, at least 1 once it has started, as DescribeTrainingJob has them. Training
// time is that of all attempts, downloads and work lost to an interruption included, waiting
// excluded. A spot job is billed the part of it that its price is of the on-demand price.
struct JobTimes {
  std::int64_t training = 0;
  std::int64_t billable = 0;
};
JobTimes job_times(const TrainingJob& job, Time now);
// How long its warm pool has been held for nobody; in seconds of one instance, rounded up.
std::chrono::milliseconds held_for_nobody(const WarmPool& pool, Time now);
std::int64_t warm_seconds(const WarmPool& pool, Time now);
// How long the next attempt may run: what is left of MaxRuntimeInSeconds, at least a second.
std::chrono::seconds runtime_left(const TrainingJob& job);

}  // namespace atelier::jobs
