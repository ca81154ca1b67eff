// Where jobs are kept: one SQLite file. Every call that changes something is one transaction; once
// it has returned, a power cut loses nothing of it. Safe from many threads: readers have
// connections of their own and never wait for a writer.
#pragma once

#include <cstdint>
#include <filesystem>
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
  enum class SortBy { kCreationTime, kName, kStatus } sort_by = SortBy::kCreationTime;
  bool ascending = false;
  std::size_t max_results = 10;
  std::string next_token = {};
};

struct JobPage {
  std::vector<TrainingJob> jobs;  // without request_json and transitions: describe() has them
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
