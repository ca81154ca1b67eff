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
  // A filter of the caller's own, asked for one whole job after the other until the page is full;
  // jobs are whole then. `filter_id` tells such filters apart in tokens.
  std::function<bool(const TrainingJob&)> filter = {};
  std::string filter_id = {};
};

struct JobPage {
  // Without request_json and transitions, unless the query had a filter: describe() has them.
  std::vector<TrainingJob> jobs;
  std::string next_token;
};

struct StoreOptions {
  int busy_timeout_ms = 5000;  // patience with another process that holds the file
  std::int64_t max_pages = 0;  // of 4 KiB; 0: as many as the disk holds
};

class Store {
 public:
  static Result<std::unique_ptr<Store>> open(const std::filesystem::path& file,
                                             const StoreOptions& options = {});
  ~Store();

  // Gives the job's id. kAlreadyExists when a job has that name; nothing is changed then.
  Result<std::uint64_t> insert(const TrainingJob& job);
  // Saves a job that was loaded at `loaded_version`, with the transitions that it has gained since.
  // kAborted when somebody else has saved it meanwhile: load and decide again.
  Result<void> save(const TrainingJob& job, std::uint64_t loaded_version);

  // The request of a job as it stands from now on, and the time of that change where it is one of
  // the job's own; the record's version goes up by one. kAborted as save().
  Result<void> replace_request(const std::string& name, std::uint64_t loaded_version,
                               const std::string& request_json, std::optional<Time> modified);
  // The request as CreateTrainingJob brought it, whatever became of it since. kNotFound.
  Result<std::string> created_as(const std::string& name);

  // Removes a job that has ended, and remembers its name among removed() until its folder is gone
  // too. kNotFound; kAborted as save().
  Result<void> remove(const std::string& name, std::uint64_t loaded_version);
  Result<std::vector<std::string>> removed();
  Result<void> forget_removed(const std::string& name);

  Result<TrainingJob> load(const std::string& name);  // kNotFound
  // Jobs that have not ended, whole, in the order of their creation.
  Result<std::vector<TrainingJob>> load_active();
  Result<JobPage> list(const ListQuery& query);
  // Jobs whose log stream's name starts with `prefix`, by that name; without requests and
  // transitions.
  Result<std::vector<TrainingJob>> with_log_stream(const std::string& prefix);

 private:
  struct State;
  explicit Store(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atelier::jobs
