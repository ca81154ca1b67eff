// Where jobs are kept: one SQLite file. Every call that changes something is one transaction; once
// it has returned, a power cut loses nothing of it. Safe from many threads: readers have
// connections of their own and never wait for a writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "jobs/training_job.h"

namespace atelier::jobs {

struct ListQuery {
  // With initialisers, so that a query names only what it filters by.
  std::string name_contains = {};
  std::string status_equals = {};
  std::string warm_status_equals = {};
  std::optional<Time> created_after = {}, created_before = {};
  std::optional<Time> modified_after = {}, modified_before = {};
  enum class SortBy {
    kCreationTime,
    kName,
    kStatus,
    kModifiedTime
  } sort_by = SortBy::kCreationTime;
  bool ascending = false;
  std::size_t max_results = 10;
  std::string next_token = {};
  // Tells the filters of find() apart in tokens.
  std::string filter_id = {};
};

// Ids are never given twice, and each change of a record has a version of its own: whatever was
// made of a record holds as long as both are the same.
struct RecordVersion {
  std::uint64_t id = 0;
  std::uint64_t version = 0;
  bool operator==(const RecordVersion&) const = default;
};

// What a listing shows of a job. A page of summaries costs a fraction of one of whole jobs.
struct JobSummary {
  std::uint64_t id = 0;
  std::string name, arn;
  std::string status, secondary_status;
  Time created{}, modified{};
  std::optional<Time> ended;
  WarmPool warm;
};
JobSummary summary_of(const TrainingJob& job);

template <typename Job>
struct Page {
  std::vector<Job> jobs;
  std::string next_token;  // of the next page; empty: there is none
};

// What the log streams of a job are found by.
struct StreamRow {
  std::string job, log_stream;  // that of the first instance
  Time created{}, modified{};
  bool ended = false;
};
struct StreamScan {
  // By the stream's name; jobs that run, in any order; those that have ended, by their last change
  // or their creation.
  enum class Order { kName, kActive, kEndedLastFirst, kEndedFirstFirst } order = Order::kName;
  bool descending = false;            // by name
  std::string first = {}, last = {};  // by name: from the first one to before the last one
  std::optional<Time> created_by = {}, modified_from = {};  // of those that have ended
};

// Whether a job, whole, is one of those that are looked for.
using JobFilter = std::function<bool(const TrainingJob&)>;
inline bool every_job(const TrainingJob&) { return true; }

struct StoreOptions {
  int busy_timeout_ms = 5000;  // patience with another process that holds the file
  std::int64_t max_pages = 0;  // of 4 KiB; 0: as many as the disk holds
};

class Store {
 public:
  static Result<std::unique_ptr<Store>> open(const std::filesystem::path& file,
                                             const StoreOptions& options = {});
  ~Store();

  // A job that was loaded at `loaded_version`, as it is to be.
  struct Change {
    const TrainingJob& job;
    std::uint64_t loaded_version;
  };
  // Gives the job's id. kAlreadyExists when a job has that name; nothing is changed then. In the
  // same transaction the job whose warm pool it takes over is saved, as save() does.
  Result<std::uint64_t> insert(const TrainingJob& job,
                               const std::optional<Change>& taken = std::nullopt);
  // Saves a job that was loaded at `loaded_version`, with the transitions that it has gained since,
  // and `taken` as insert() does. kAborted when somebody else has saved one of them meanwhile: load
  // and decide again.
  Result<void> save(const TrainingJob& job, std::uint64_t loaded_version,
                    const std::optional<Change>& taken = std::nullopt);

  // The request of a job as it stands from now on, with its warm pool, and the time of that change
  // where it is one of the job's own; the record's version goes up by one. kAborted as save().
  Result<void> replace_request(const std::string& name, std::uint64_t loaded_version,
                               const std::string& request_json, std::optional<Time> modified,
                               const WarmPool& warm);
  // The request as CreateTrainingJob brought it, whatever became of it since. kNotFound.
  Result<std::string> created_as(const std::string& name);

  // Removes a job that has ended, and remembers its name among removed() until its folder is gone
  // too. kNotFound; kAborted as save().
  Result<void> remove(const std::string& name, std::uint64_t loaded_version);
  Result<std::vector<std::string>> removed();
  Result<bool> is_removed(const std::string& name);
  Result<void> forget_removed(const std::string& name);

  Result<TrainingJob> load(const std::string& name);  // kNotFound
  // What the record of that name is now, for the price of one look into an index. kNotFound.
  Result<RecordVersion> version(const std::string& name);
  // Jobs that have not ended, whole, in the order of their creation.
  Result<std::vector<TrainingJob>> load_active();
  // Those that have ended and whose warm pool is Available, likewise.
  Result<std::vector<TrainingJob>> load_warm();
  // Whether a job that is there had that warm pool, and its pool is over.
  Result<bool> has_terminated_pool(const std::string& pool);
  Result<Page<JobSummary>> list(const ListQuery& query);
  // Reads one job after the other in the query's order until the page is full.
  Result<Page<TrainingJob>> find(const ListQuery& query, const JobFilter& filter);
  // Hands one job after the other to `take`, until that has enough and gives false.
  Result<void> scan_log_streams(const StreamScan& scan,
                                const std::function<Result<bool>(const StreamRow&)>& take);

 private:
  struct State;
  Result<std::vector<TrainingJob>> load_where(std::string_view condition);
  explicit Store(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atelier::jobs
