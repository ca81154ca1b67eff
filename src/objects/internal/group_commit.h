// Writes to the index, many in one transaction.
//
// Whoever comes first leads: it runs its own change and all that wait, commits once (one fsync) and
// wakes the others. While it commits, the next batch gathers. So a single writer waits for nobody,
// and a hundred share the cost of the disk.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "sqlite/sqlite.h"

namespace atelier::objects::internal {

using sqlite::Database;

class GroupCommit {
 public:
  explicit GroupCommit(Database database) : database_(std::move(database)) {}
  GroupCommit(const GroupCommit&) = delete;
  GroupCommit& operator=(const GroupCommit&) = delete;

  // A change may run twice (alone, when a batch failed), so it must set all that it hands out. An
  // Error of a change that has written nothing leaves the others of the batch alone.
  using Change = std::function<Result<void>(Database&)>;

  // Returns when the change is durable, or its Error with nothing changed.
  Result<void> run(const Change& change);

 private:
  struct Waiting {
    const Change* change;
    Result<void> result{};
    bool done = false;
  };

  void execute(std::vector<Waiting*>& batch);
  Result<void> execute_together(std::vector<Waiting*>& batch);

  Database database_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Waiting*> queue_;
  bool led_ = false;
};

}  // namespace atelier::objects::internal
