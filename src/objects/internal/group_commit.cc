#include "objects/internal/group_commit.h"

namespace atelier::objects::internal {

Result<void> GroupCommit::run(const Change& change) {
  Waiting mine{.change = &change};
  std::unique_lock lock{mutex_};
  queue_.push_back(&mine);
  changed_.wait(lock, [&] { return mine.done || !led_; });
  if (mine.done) return std::move(mine.result);

  led_ = true;
  std::vector<Waiting*> batch;
  batch.swap(queue_);
  lock.unlock();
  execute(batch);
  lock.lock();
  led_ = false;
  for (Waiting* waiting : batch) waiting->done = true;
  lock.unlock();
  changed_.notify_all();
  return std::move(mine.result);
}

void GroupCommit::execute(std::vector<Waiting*>& batch) {
  Result<void> together = execute_together(batch);
  if (together) return;
  if (batch.size() == 1) {
    batch.front()->result = std::move(together);
    return;
  }
  // One of them may be too much for the disk: each gets its own chance.
  for (Waiting* waiting : batch) {
    std::vector<Waiting*> alone{waiting};
    Result<void> result = execute_together(alone);
    if (!result) waiting->result = std::move(result);
  }
}

Result<void> GroupCommit::execute_together(std::vector<Waiting*>& batch) {
  TRY(database_.script("BEGIN IMMEDIATE"));
  Result<void> outcome;
  for (Waiting* waiting : batch) {
    const std::int64_t before = database_.total_changes();
    waiting->result = (*waiting->change)(database_);
    if (!waiting->result && database_.total_changes() != before) {
      outcome = waiting->result.error();
      break;
    }
  }
  if (outcome) outcome = database_.script("COMMIT");
  if (!outcome) {
    // SQLite may have rolled back by itself, for example when the disk is full.
    ignore_error(database_.script("ROLLBACK"), "there may be no transaction left to undo");
  }
  return outcome;
}

}  // namespace atelier::objects::internal
