#include "jobs/internal/store_schema.h"

namespace atelier::jobs::internal {

// Requests lie apart, so that a listing reads pages of small rows. A transition's end is the start
// of the next one, which keeps the table append-only.
const std::vector<std::string>& store_schema() {
  static const std::vector<std::string> steps = {
      R"(
    CREATE TABLE jobs(
      id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, arn TEXT NOT NULL, status TEXT NOT NULL,
      secondary_status TEXT NOT NULL, failure_reason TEXT NOT NULL, created INTEGER NOT NULL,
      modified INTEGER NOT NULL, started INTEGER, ended INTEGER, model_uri TEXT NOT NULL,
      limits TEXT NOT NULL, warnings TEXT NOT NULL, final_metrics TEXT NOT NULL,
      invocation_id TEXT NOT NULL, log_stream TEXT NOT NULL, vcpus REAL NOT NULL,
      memory_gib REAL NOT NULL, gpus INTEGER NOT NULL, admitted INTEGER NOT NULL,
      stop_requested INTEGER NOT NULL, journal_sequence INTEGER NOT NULL, version INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX jobs_by_creation ON jobs(created, id);
    CREATE INDEX jobs_by_status ON jobs(status, id);
    CREATE INDEX jobs_by_log_stream ON jobs(log_stream);
    CREATE INDEX jobs_active ON jobs(id) WHERE status IN ('InProgress', 'Stopping');
    CREATE TABLE requests(
      job INTEGER PRIMARY KEY REFERENCES jobs(id), body TEXT NOT NULL) STRICT;
    CREATE TABLE transitions(
      job INTEGER NOT NULL REFERENCES jobs(id), n INTEGER NOT NULL, status TEXT NOT NULL,
      message TEXT NOT NULL, start INTEGER NOT NULL, PRIMARY KEY(job, n)) STRICT, WITHOUT ROWID;
  )",
      R"(
    ALTER TABLE jobs ADD COLUMN terms TEXT NOT NULL DEFAULT '';
    ALTER TABLE jobs ADD COLUMN attempts TEXT NOT NULL DEFAULT '';
  )",
      // Requests change (UpdateTrainingJob, AddTags) and jobs go (DeleteTrainingJob).
      R"(
    ALTER TABLE requests ADD COLUMN created_as TEXT;
    CREATE TABLE removed(name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
    CREATE INDEX jobs_by_modification ON jobs(modified, id);
  )",
      // Who made a job was a member of its request. A request that is not JSON stays as it is: the
      // job has no keys then, and shows no request.
      R"(
    ALTER TABLE jobs ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
    UPDATE jobs SET created_by = coalesce(
      (SELECT json_extract(body, '$.AtelierCreatedBy') FROM requests
       WHERE job = id AND json_valid(body) AND json_type(body, '$.AtelierCreatedBy') = 'text'), '');
    UPDATE requests SET body = json_remove(body, '$.AtelierCreatedBy')
      WHERE json_valid(body) AND json_type(body, '$.AtelierCreatedBy') IS NOT NULL;
    UPDATE requests SET created_as = json_remove(created_as, '$.AtelierCreatedBy')
      WHERE json_valid(created_as) AND json_type(created_as, '$.AtelierCreatedBy') IS NOT NULL;
  )",
      // So that the jobs of a status need no sorting, page after page, in any order.
      R"(
    CREATE INDEX jobs_by_status_and_creation ON jobs(status, created, id);
    CREATE INDEX jobs_by_status_and_modification ON jobs(status, modified, id);
    CREATE INDEX jobs_by_status_and_name ON jobs(status, name, id);
  )",
      // SQLite gives the id of a job that was removed last to the next one; we do not.
      R"(
    CREATE TABLE ids(last INTEGER NOT NULL) STRICT;
    INSERT INTO ids SELECT coalesce(max(id), 0) FROM jobs;
  )",
      // Warm pools. Their status stands apart, for listings and for the few that are Available.
      R"(
    ALTER TABLE jobs ADD COLUMN warm_status TEXT NOT NULL DEFAULT '';
    ALTER TABLE jobs ADD COLUMN warm TEXT NOT NULL DEFAULT '';
    CREATE INDEX jobs_by_warm_status ON jobs(warm_status, created, id) WHERE warm_status <> '';
  )"};
  return steps;
}

}  // namespace atelier::jobs::internal
