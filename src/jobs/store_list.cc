// Listings: pages of jobs by index, each of which says where the next one goes on.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "jobs/internal/job_rows.h"
#include "jobs/internal/listing.h"
#include "jobs/internal/store_state.h"
#include "jobs/store.h"
#include "sqlite/sqlite.h"

namespace atelier::jobs {
namespace {

using internal::Part;
using internal::Position;
using sqlite::Database;
using sqlite::Rows;

constexpr std::int64_t kNoLimit = -1;

// Hands the rows of a listing to `take`, in its order, until that has enough and gives false.
template <typename Take>
Result<void> read_rows(Database& database, std::string_view columns, const ListQuery& query,
                       std::int64_t limit, const Take& take) {
  Position after;
  if (!query.next_token.empty()) after = TRY(internal::parse_token(query));
  const auto read = [&](Part part) -> Result<bool> {
    const internal::Sql sql = internal::listing_sql(columns, query, part, after, limit);
    Rows rows = TRY(database.query(sql.text, sql.values));
    while (TRY(rows.step())) {
      if (!TRY(take(rows))) return false;
    }
    return true;
  };
  if (query.next_token.empty()) {
    TRY(read(Part::kAll));
  } else if (TRY(read(Part::kSameKey))) {
    TRY(read(Part::kPastKey));
  }
  return {};
}

std::size_t page_size(const ListQuery& query) {
  return std::clamp<std::size_t>(query.max_results, 1, 1000);
}

JobSummary last_of(const std::vector<JobSummary>& found) { return found.back(); }
JobSummary last_of(const std::vector<TrainingJob>& found) { return summary_of(found.back()); }

// Of one job more than the page holds: that one says whether there is a next page.
template <typename Job>
Page<Job> make_page(const ListQuery& query, std::vector<Job> found) {
  Page<Job> page;
  if (found.size() > page_size(query)) {
    found.pop_back();
    const JobSummary last = last_of(found);
    page.next_token = internal::make_token(
        query, {internal::sort_key(query.sort_by, last), static_cast<std::int64_t>(last.id)});
  }
  page.jobs = std::move(found);
  return page;
}

}  // namespace

JobSummary summary_of(const TrainingJob& job) {
  return {job.id,      job.name,     job.arn,   job.status, job.secondary_status,
          job.created, job.modified, job.ended, job.warm};
}

Result<Page<JobSummary>> Store::list(const ListQuery& query) {
  const std::size_t wanted = page_size(query) + 1;
  std::vector<JobSummary> found;
  found.reserve(wanted);
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  TRY(read_rows(*reader, internal::kSummaryColumns, query, static_cast<std::int64_t>(wanted),
                [&](const Rows& rows) -> Result<bool> {
                  found.push_back(internal::read_summary(rows));
                  return found.size() < wanted;
                }));
  return make_page(query, std::move(found));
}

Result<Page<TrainingJob>> Store::find(const ListQuery& query, const JobFilter& filter) {
  const std::size_t wanted = page_size(query) + 1;
  std::vector<TrainingJob> found;
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  TRY(read_rows(*reader, internal::kJobColumns, query, kNoLimit,
                [&](const Rows& rows) -> Result<bool> {
                  TrainingJob job = internal::read_job(rows);
                  TRY(internal::read_transitions(*reader, job));
                  if (filter(job)) found.push_back(std::move(job));
                  return found.size() < wanted;
                }));
  return make_page(query, std::move(found));
}

Result<void> Store::scan_log_streams(const StreamScan& scan,
                                     const std::function<Result<bool>(const StreamRow&)>& take) {
  using Order = StreamScan::Order;
  std::string sql = "SELECT name, log_stream, created, modified, status FROM jobs WHERE ";
  std::vector<sqlite::Value> values;
  if (scan.order == Order::kName) {
    sql += fmt::format("log_stream >= ? AND log_stream < ? ORDER BY log_stream{}",
                       scan.descending ? " DESC" : "");
    values = {std::string_view{scan.first}, std::string_view{scan.last}};
  } else if (scan.order == Order::kActive) {
    // A spot job that waits again has a log, too.
    sql += "status IN ('InProgress', 'Stopping') AND (admitted = 1 OR started IS NOT NULL)";
  } else {
    // The signs keep SQLite to the index of the order: nothing is sorted.
    sql += "+status NOT IN ('InProgress', 'Stopping') AND ";
    sql += scan.order == Order::kEndedLastFirst
               ? "+created <= ? AND modified >= ? ORDER BY modified DESC"
               : "created <= ? AND +modified >= ? ORDER BY created";
    values = {scan.created_by ? to_epoch_milliseconds(*scan.created_by)
                              : std::numeric_limits<std::int64_t>::max(),
              scan.modified_from ? to_epoch_milliseconds(*scan.modified_from) : std::int64_t{0}};
  }
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  Rows rows = TRY((*reader).query(sql, values));
  while (TRY(rows.step())) {
    const std::string status = rows.text(4);
    const StreamRow row{rows.text(0), rows.text(1), from_epoch_milliseconds(rows.integer(2)),
                        from_epoch_milliseconds(rows.integer(3)),
                        status != "InProgress" && status != "Stopping"};
    if (!TRY(take(row))) break;
  }
  return {};
}

}  // namespace atelier::jobs
