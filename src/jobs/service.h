// Training jobs and their logs as the API, the command line and the tests use them. Every call is
// one transaction on the store; the work itself goes on in agents. Safe from many threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/log_file.h"
#include "agent/spec.h"
#include "base/result.h"
#include "base/time.h"
#include "compute/instance_types.h"
#include "compute/packages.h"
#include "compute/price_lists.h"
#include "compute/runtimes.h"
#include "jobs/metrics.h"
#include "jobs/store.h"
#include "jobs/training_job.h"
#include "objects/s3_client.h"

namespace atelier::jobs {

struct ServiceOptions {
  std::filesystem::path folder;  // DATA_DIR/jobs
  // Where the folders of deleted jobs wait for their removal.
  [[nodiscard]] std::filesystem::path removed_folder() const { return folder / ".removed"; }
  // DATA_DIR/warm: a folder for each warm pool
  [[nodiscard]] std::filesystem::path warm_folder() const { return folder.parent_path() / "warm"; }
  std::filesystem::path agent_program;  // our own executable
  std::string region = "us-west-2";
  std::string account = "000000000000";
  std::function<objects::S3Endpoint()> s3;  // what agents are given (known once the server listens)
  // Puts the job's own keys into what its agent is told; without it those of s3() stay.
  std::function<void(const TrainingJob& job, agent::AgentSpec& spec)> give_keys{};
  // The user ids that a person's keys have now, by ARN; none when all are revoked. Without it
  // nobody is asked for.
  std::function<std::vector<std::string>(const std::string& arn)> user_ids{};
  compute::InstanceTable instances;
  std::vector<compute::PriceList> price_lists = compute::builtin_price_lists();
  compute::RuntimeTable runtimes;
  compute::PackageSource packages;                        // of the jobs' pip
  bool host_network = false;                              // jobs share the host's
  std::filesystem::path cache_folder;                     // where jobs share what they download
  std::uint64_t cache_bytes = 0;                          // 0: they do not
  compute::HostCapacity host = compute::host_capacity();  // what jobs may use together
  // Journals are watched; this is how often they are looked at besides, should a notice be lost.
  std::chrono::milliseconds scan_interval{5000};
};

struct LogStream {
  std::string name;  // "job/algo-1-1796022355"
  Time created{};
  std::optional<Time> first_event, last_event;
  std::uint64_t stored_bytes = 0;
};

// Where a stream stands in the order of a listing.
struct LogStreamPlace {
  Time last_event{};  // 1970 when the order is by name
  std::string name;
  auto operator<=>(const LogStreamPlace&) const = default;
};
struct LogStreamQuery {
  std::string prefix = {};
  bool by_time = false;  // of the last line, else by name
  bool descending = false;
  std::optional<LogStreamPlace> after = {};
  std::size_t limit = 50;
};
struct LogStreamPage {
  std::vector<LogStream> streams;
  std::optional<LogStreamPlace> next;  // `after` of the next page, if there is one
};

struct LogQuery {
  std::string stream = {};
  std::optional<Time> start = {}, end = {};  // start inclusive, end exclusive
  std::string token = {};                    // "f/..." or "b/..." from an earlier page
  std::size_t limit = 10000;
  bool from_head = false;
};

struct LogQueryPage {
  std::vector<agent::LogEvent> events;
  std::string next_forward_token, next_backward_token;
};

// Changes the request of `job`, as updates and tags do; an error leaves all as it was. True when
// that is a change of the job itself, which its LastModifiedTime shows.
using RequestChange = std::function<Result<bool>(const TrainingJob& job, std::string& request)>;

struct NewJob {
  std::string request_json;  // a body that the service model found valid
  std::string invocation_id = {};
  // The caller (jobs/job_access.h): the job's keys reach no further. Nobody's reach nothing.
  std::string created_by = {};
};

class Service {
 public:
  // Opens the store, adopts agents that still run, takes in what their journals say, fails jobs
  // whose agent is gone, and starts what is queued.
  static Result<std::unique_ptr<Service>> open(ServiceOptions options, const Clock& clock);
  virtual ~Service() = default;
  // Starts background work (journals, queue). Called once the server listens.
  virtual void run() = 0;

  // The same call again gives the same arn; another job of that name is kAlreadyExists.
  virtual Result<std::string> create(const NewJob& wanted) = 0;
  virtual Result<TrainingJob> describe(const std::string& name) = 0;
  // That of the record which describe() would give now, much cheaper.
  virtual Result<RecordVersion> version(const std::string& name) = 0;
  virtual Result<Page<JobSummary>> list(const ListQuery& query) = 0;
  // Whole jobs, read one after the other until `filter` has taken a page.
  virtual Result<Page<TrainingJob>> find(const ListQuery& query, const JobFilter& filter) = 0;
  // `call` is the same for a client's retries, as in create(). Another call while results are
  // uploaded gives that up: what is not in S3 yet stays on the host.
  virtual Result<void> stop(const std::string& name, const std::string& call) = 0;
  Result<void> stop(const std::string& name) { return stop(name, ""); }
  // Takes the host's share from a spot job that runs, with notice; it waits for room and runs
  // again. kFailedPrecondition for a job that is not spot, or does not run.
  virtual Result<void> interrupt(const std::string& name, const std::string& why) = 0;
  // In one step with the look at the job that `change` is given. Agents that run are not told. A
  // KeepAlivePeriodInSeconds that the change brings counts at once.
  virtual Result<void> change_request(const std::string& name, const RequestChange& change) = 0;
  // Removes the record, logs and metrics of a job that has ended; its objects in S3 stay, and its
  // name is free again. kFailedPrecondition while it has not ended, kUnavailable while its agent
  // still cleans up.
  virtual Result<void> remove(const std::string& name) = 0;

  // Streams of instances that have written a line.
  virtual Result<LogStreamPage> log_streams(const LogStreamQuery& query) = 0;
  virtual Result<LogQueryPage> log_events(const LogQuery& query) = 0;

  // The metrics that a job has so far, with their last values.
  virtual Result<std::vector<FinalMetric>> metrics(const TrainingJob& job) = 0;
  // read_metric() of jobs/metrics.h; kNotFound when there is no such job.
  virtual Result<void> read_metric(const std::string& job, const std::string& name, Time from,
                                   Time to,
                                   const std::function<bool(const MetricSample&)>& take) = 0;

  // What instances cost elsewhere.
  [[nodiscard]] virtual const std::vector<compute::PriceList>& price_lists() const = 0;

  // A number that grows with every change of any job; waits until it is above `seen` or the time is
  // up. For live views and tests.
  virtual std::uint64_t wait_for_change(std::uint64_t seen, std::chrono::milliseconds limit) = 0;
};

}  // namespace atelier::jobs
