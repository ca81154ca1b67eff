// Jobs as rows of the store's tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "jobs/store.h"
#include "jobs/training_job.h"
#include "sqlite/sqlite.h"

namespace atelier::jobs::internal {

// What read_job() reads: all of a job but its transitions.
inline constexpr std::string_view kJobColumns =
    "id, name, arn, status, secondary_status, failure_reason, created, modified, started, ended, "
    "model_uri, limits, warnings, final_metrics, invocation_id, log_stream, vcpus, memory_gib, "
    "gpus, admitted, stop_requested, journal_sequence, version, terms, attempts, created_by, "
    "warm_status, warm, (SELECT body FROM requests WHERE job = id)";
TrainingJob read_job(const sqlite::Rows& rows);
Result<void> read_transitions(sqlite::Database& database, TrainingJob& job);

// What read_summary() reads.
inline constexpr std::string_view kSummaryColumns =
    "id, name, arn, status, secondary_status, created, modified, ended, warm_status, warm";
JobSummary read_summary(const sqlite::Rows& rows);

// The row of a new job, its request and its transitions; gives its id.
Result<std::int64_t> insert_job(sqlite::Database& database, const TrainingJob& job);
// What may have changed of a job, and the transitions from number `from` on.
Result<void> update_job(sqlite::Database& database, std::int64_t id, const TrainingJob& job,
                        std::size_t from);

Error no_such_job(const std::string& name);

}  // namespace atelier::jobs::internal
