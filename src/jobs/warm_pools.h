// The warm pools that nobody uses now: which of them a new job may take over, and when each is
// over. A value; not safe from threads. What happens to a job's own record is advance()'s
// (training_job.h), who makes room for whom is Capacity's (capacity.h).
//
//   pools.keep(job, since)                   its status has become Available
//   if (auto of = pools.match(newcomer)) ... that job's pool fits
//   pools.remove(name)                       taken, or over
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jobs/capacity.h"
#include "jobs/training_job.h"

namespace atelier::jobs {

// What two jobs must have in common for one to get the other's instances, with what the other has
// left there, as a text to compare: who made it, by way of which roles (job_access.h), its role,
// image and network settings, all of its ResourceConfig but KeepAlivePeriodInSeconds, and its share
// of the host. Empty: nothing may be shared with this job, because it is spot or its maker is not
// known (of a job that an older version let a job make, a name is all, and names come back).
std::string pool_terms(const TrainingJob& job);

class WarmPools {
 public:
  using Steady = std::chrono::steady_clock::time_point;
  // Whether the person at the root of `created_by` is still the one with that user id.
  using IsOwner = std::function<bool(const std::string& created_by, const std::string& user_id)>;

  // Without `is_owner` every owner counts.
  explicit WarmPools(IsOwner is_owner = {}) : is_owner_(std::move(is_owner)) {}

  // Of a job whose pool is Available, since `since`; again after its period has changed.
  void keep(const TrainingJob& job, Steady since);
  // False when there was none.
  bool remove(const std::string& job) { return pools_.erase(job) > 0; }
  [[nodiscard]] bool empty() const { return pools_.empty(); }
  [[nodiscard]] bool holds(const std::string& job) const { return pools_.contains(job); }

  // Those whose owner has no key any more; nobody gets them.
  [[nodiscard]] std::vector<std::string> without_owner() const;

  // The job whose pool `newcomer` may take over: of several, the one that was used last. A job that
  // has run, or has taken over a pool before, takes none.
  [[nodiscard]] std::optional<std::string> match(const TrainingJob& newcomer) const;

  // By the steady clock: a wall clock that jumps ends no pool.
  [[nodiscard]] std::optional<Steady> next_end() const;
  [[nodiscard]] std::vector<std::string> over(Steady now) const;
  // That could not be ended now, and is to be tried again.
  void put_off(const std::string& job, Steady until);

 private:
  struct Pool {
    std::string terms;
    std::string created_by;
    std::string owner;
    Steady since;
    Steady end;
  };
  [[nodiscard]] bool has_owner(const Pool& pool) const {
    return !is_owner_ || is_owner_(pool.created_by, pool.owner);
  }
  IsOwner is_owner_;
  std::map<std::string, Pool> pools_;  // by the job that left them
};

}  // namespace atelier::jobs
