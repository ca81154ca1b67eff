#include "jobs/internal/job_rows.h"

#include <fmt/format.h>

#include "jobs/internal/record_text.h"

namespace atelier::jobs::internal {
namespace {

using sqlite::Database;
using sqlite::Rows;
using sqlite::Value;

// A job from before there were attempts.
void add_up_single_attempt(TrainingJob& job) {
  if (!job.started) return;
  if (job.ended) {
    job.attempts.trained = *job.ended - *job.started;
  } else {
    job.attempts.began = job.started;
  }
}

Value or_null(const std::optional<Time>& time) {
  if (!time) return nullptr;
  return to_epoch_milliseconds(*time);
}

Result<void> append_transitions(Database& database, std::int64_t id, const TrainingJob& job,
                                std::size_t from) {
  for (std::size_t n = from; n < job.transitions.size(); ++n) {
    const Transition& transition = job.transitions[n];
    TRY(database.run("INSERT INTO transitions VALUES(?, ?, ?, ?, ?)",
                     {id, static_cast<std::int64_t>(n), transition.status, transition.message,
                      to_epoch_milliseconds(transition.start)}));
  }
  return {};
}

}  // namespace

TrainingJob read_job(const Rows& rows) {
  const auto time = [&](int column) { return from_epoch_milliseconds(rows.integer(column)); };
  TrainingJob job;
  job.id = static_cast<std::uint64_t>(rows.integer(0));
  job.name = rows.text(1);
  job.arn = rows.text(2);
  job.status = rows.text(3);
  job.secondary_status = rows.text(4);
  job.failure_reason = rows.text(5);
  job.created = time(6);
  job.modified = time(7);
  if (!rows.null(8)) job.started = time(8);
  if (!rows.null(9)) job.ended = time(9);
  job.model_uri = rows.text(10);
  job.limits = rows.text(11);
  job.warnings = warnings_from_text(rows.bytes(12));
  job.final_metrics = metrics_from_text(rows.bytes(13));
  job.invocation_id = rows.text(14);
  job.log_stream = rows.text(15);
  job.vcpus = rows.number(16);
  job.memory_gib = rows.number(17);
  job.gpus = static_cast<int>(rows.integer(18));
  job.admitted = rows.integer(19) != 0;
  job.stop_requested = rows.integer(20) != 0;
  job.journal_sequence = static_cast<std::uint64_t>(rows.integer(21));
  job.version = static_cast<std::uint64_t>(rows.integer(22));
  job.terms = terms_from_text(rows.bytes(23));
  job.attempts = attempts_from_text(rows.bytes(24));
  if (rows.bytes(24).empty()) add_up_single_attempt(job);
  job.created_by = rows.text(25);
  job.warm = warm_from_text(rows.bytes(26), rows.bytes(27));
  job.request_json = rows.text(28);
  return job;
}

Result<void> read_transitions(Database& database, TrainingJob& job) {
  std::vector<Transition>& transitions = job.transitions;
  Rows rows =
      TRY(database.query("SELECT status, message, start FROM transitions WHERE job = ? ORDER BY n",
                         {static_cast<std::int64_t>(job.id)}));
  while (TRY(rows.step())) {
    const Time start = from_epoch_milliseconds(rows.integer(2));
    if (!transitions.empty()) transitions.back().end = start;
    transitions.push_back({rows.text(0), rows.text(1), start, std::nullopt});
  }
  if (job.terminal() && !transitions.empty()) transitions.back().end = transitions.back().start;
  return {};
}

JobSummary read_summary(const Rows& rows) {
  const auto time = [&](int column) { return from_epoch_milliseconds(rows.integer(column)); };
  JobSummary job;
  job.id = static_cast<std::uint64_t>(rows.integer(0));
  job.name = rows.text(1);
  job.arn = rows.text(2);
  job.status = rows.text(3);
  job.secondary_status = rows.text(4);
  job.created = time(5);
  job.modified = time(6);
  if (!rows.null(7)) job.ended = time(7);
  job.warm = warm_from_text(rows.bytes(8), rows.bytes(9));
  return job;
}

Result<std::int64_t> insert_job(Database& database, const TrainingJob& job) {
  const std::string warnings = to_text(job.warnings);
  const std::string metrics = to_text(job.final_metrics);
  const std::string terms = to_text(job.terms);
  const std::string attempts = to_text(job.attempts);
  const std::string warm = to_text(job.warm);
  TRY(database.run("UPDATE ids SET last = max(last, (SELECT coalesce(max(id), 0) FROM jobs)) + 1"));
  TRY(database.run(
      "INSERT INTO jobs(id, name, arn, status, secondary_status, failure_reason, created, "
      "modified, "
      "started, ended, model_uri, limits, warnings, final_metrics, invocation_id, log_stream, "
      "vcpus, memory_gib, gpus, admitted, stop_requested, journal_sequence, version, terms, "
      "attempts, created_by, warm_status, warm) "
      "VALUES((SELECT last FROM ids), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "?, ?, ?, ?, ?, ?, ?)",
      {job.name,
       job.arn,
       job.status,
       job.secondary_status,
       job.failure_reason,
       to_epoch_milliseconds(job.created),
       to_epoch_milliseconds(job.modified),
       or_null(job.started),
       or_null(job.ended),
       job.model_uri,
       job.limits,
       warnings,
       metrics,
       job.invocation_id,
       job.log_stream,
       job.vcpus,
       job.memory_gib,
       std::int64_t{job.gpus},
       std::int64_t{job.admitted},
       std::int64_t{job.stop_requested},
       static_cast<std::int64_t>(job.journal_sequence),
       static_cast<std::int64_t>(job.version),
       terms,
       attempts,
       job.created_by,
       job.warm.status,
       warm}));
  const std::int64_t id = database.last_id();
  TRY(database.run("INSERT INTO requests(job, body) VALUES(?, ?)", {id, job.request_json}));
  TRY(append_transitions(database, id, job, 0));
  return id;
}

Result<void> update_job(Database& database, std::int64_t id, const TrainingJob& job,
                        std::size_t from) {
  const std::string warnings = to_text(job.warnings);
  const std::string metrics = to_text(job.final_metrics);
  const std::string attempts = to_text(job.attempts);
  const std::string warm = to_text(job.warm);
  TRY(database.run(
      "UPDATE jobs SET status = ?, secondary_status = ?, failure_reason = ?, modified = ?, "
      "started = ?, ended = ?, limits = ?, warnings = ?, final_metrics = ?, admitted = ?, "
      "stop_requested = ?, journal_sequence = ?, version = ?, attempts = ?, "
      "warm_status = ?, warm = ? WHERE id = ?",
      {job.status, job.secondary_status, job.failure_reason, to_epoch_milliseconds(job.modified),
       or_null(job.started), or_null(job.ended), job.limits, warnings, metrics,
       std::int64_t{job.admitted}, std::int64_t{job.stop_requested},
       static_cast<std::int64_t>(job.journal_sequence), static_cast<std::int64_t>(job.version),
       attempts, job.warm.status, warm, id}));
  return append_transitions(database, id, job, from);
}

Error no_such_job(const std::string& name) {
  return Error{Code::kNotFound, fmt::format("training job '{}' does not exist", name)};
}

}  // namespace atelier::jobs::internal
