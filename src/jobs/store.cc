#include "jobs/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/hash.h"
#include "base/json.h"
#include "jobs/internal/record_text.h"
#include "sqlite/sqlite.h"

namespace atelier::jobs {
namespace {

using internal::to_text;
using sqlite::Database;
using sqlite::Rows;
using sqlite::Transaction;
using sqlite::Value;

// Requests lie apart, so that a listing reads pages of small rows. A transition's end is the start
// of the next one, which keeps the table append-only.
const std::vector<std::string>& schema() {
  static const std::vector<std::string> steps = {R"(
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
                                                 // Requests change (UpdateTrainingJob, AddTags) and
                                                 // jobs go (DeleteTrainingJob).
                                                 R"(
    ALTER TABLE requests ADD COLUMN created_as TEXT;
    CREATE TABLE removed(name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
    CREATE INDEX jobs_by_modification ON jobs(modified, id);
  )"};
  return steps;
}

constexpr std::string_view kColumns =
    "id, name, arn, status, secondary_status, failure_reason, created, modified, started, ended, "
    "model_uri, limits, warnings, final_metrics, invocation_id, log_stream, vcpus, memory_gib, "
    "gpus, admitted, stop_requested, journal_sequence, version, terms, attempts";

struct Row {
  std::int64_t id = 0;
  TrainingJob job;
};

// A job from before there were attempts.
void add_up_single_attempt(TrainingJob& job) {
  if (!job.started) return;
  if (job.ended) {
    job.attempts.trained = *job.ended - *job.started;
  } else {
    job.attempts.began = job.started;
  }
}

Row read_row(const Rows& rows) {
  const auto time = [&](int column) { return from_epoch_milliseconds(rows.integer(column)); };
  Row row;
  TrainingJob& job = row.job;
  row.id = rows.integer(0);
  job.id = static_cast<std::uint64_t>(row.id);
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
  job.warnings = internal::warnings_from_text(rows.text(12));
  job.final_metrics = internal::metrics_from_text(rows.text(13));
  job.invocation_id = rows.text(14);
  job.log_stream = rows.text(15);
  job.vcpus = rows.number(16);
  job.memory_gib = rows.number(17);
  job.gpus = static_cast<int>(rows.integer(18));
  job.admitted = rows.integer(19) != 0;
  job.stop_requested = rows.integer(20) != 0;
  job.journal_sequence = static_cast<std::uint64_t>(rows.integer(21));
  job.version = static_cast<std::uint64_t>(rows.integer(22));
  job.terms = internal::terms_from_text(rows.text(23));
  job.attempts = internal::attempts_from_text(rows.text(24));
  if (rows.text(24).empty()) add_up_single_attempt(job);
  return row;
}

Result<void> read_rest(Database& database, Row& row) {
  {
    Rows rows = TRY(database.query("SELECT body FROM requests WHERE job = ?", {row.id}));
    if (TRY(rows.step())) row.job.request_json = rows.text(0);
  }
  std::vector<Transition>& transitions = row.job.transitions;
  Rows rows = TRY(database.query(
      "SELECT status, message, start FROM transitions WHERE job = ? ORDER BY n", {row.id}));
  while (TRY(rows.step())) {
    const Time start = from_epoch_milliseconds(rows.integer(2));
    if (!transitions.empty()) transitions.back().end = start;
    transitions.push_back({rows.text(0), rows.text(1), start, std::nullopt});
  }
  if (row.job.terminal() && !transitions.empty()) transitions.back().end = transitions.back().start;
  return {};
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

Error no_such_job(const std::string& name) {
  return Error{Code::kNotFound, fmt::format("training job '{}' does not exist", name)};
}

// The row of a job that is still at `version`.
Result<std::int64_t> id_at_version(Database& database, const std::string& name,
                                   std::uint64_t version) {
  Rows rows = TRY(database.query("SELECT id, version FROM jobs WHERE name = ?", {name}));
  if (!TRY(rows.step())) return no_such_job(name);
  if (static_cast<std::uint64_t>(rows.integer(1)) != version) {
    return Error{Code::kAborted,
                 fmt::format("training job '{}' was changed by somebody else", name), Retry::kYes};
  }
  return rows.integer(0);
}

// The place in a listing where a page ended: the sort key and id of its last row, and what the
// listing was of, so that a token of another listing is refused.
struct Position {
  std::string key;
  std::int64_t id = 0;
};

std::string fingerprint(const ListQuery& query) {
  const auto time = [](const std::optional<Time>& value) {
    return value ? std::to_string(to_epoch_milliseconds(*value)) : std::string{"-"};
  };
  const std::string text =
      fmt::format("{}\n{}\n{} {} {} {} {} {}", query.name_contains, query.status_equals,
                  time(query.created_after), time(query.created_before), time(query.modified_after),
                  time(query.modified_before), static_cast<int>(query.sort_by), query.ascending) +
      query.filter_id;
  return sha256_hex(text).substr(0, 16);
}

std::string make_token(const ListQuery& query, const Position& position) {
  return to_base64(json::serialize(json::array{fingerprint(query), position.key, position.id}));
}

Result<Position> parse_token(const ListQuery& query) {
  const Error wrong{Code::kInvalidArgument,
                    "NextToken is not one that this listing gave: use the token of the page before "
                    "with the same filters and order, or none to begin"};
  const Result<std::string> text = from_base64(query.next_token);
  if (!text) return wrong;
  const Result<json::value> value = parse_json(*text);
  if (!value) return wrong;
  const json::array* parts = value->if_array();
  if (parts == nullptr || parts->size() != 3 || !(*parts)[0].is_string() ||
      !(*parts)[1].is_string() || !(*parts)[2].is_int64() ||
      (*parts)[0].get_string() != fingerprint(query)) {
    return wrong;
  }
  return Position{std::string{(*parts)[1].get_string()}, (*parts)[2].get_int64()};
}

const char* sort_column(ListQuery::SortBy sort_by) {
  switch (sort_by) {
    case ListQuery::SortBy::kName:
      return "name";
    case ListQuery::SortBy::kStatus:
      return "status";
    case ListQuery::SortBy::kModifiedTime:
      return "modified";
    case ListQuery::SortBy::kCreationTime:
      break;
  }
  return "created";
}

std::string sort_key(ListQuery::SortBy sort_by, const TrainingJob& job) {
  switch (sort_by) {
    case ListQuery::SortBy::kName:
      return job.name;
    case ListQuery::SortBy::kStatus:
      return job.status;
    case ListQuery::SortBy::kModifiedTime:
      return std::to_string(to_epoch_milliseconds(job.modified));
    case ListQuery::SortBy::kCreationTime:
      break;
  }
  return std::to_string(to_epoch_milliseconds(job.created));
}

struct Sql {
  std::string text;
  std::vector<Value> values;
  void where(std::string_view condition, Value value) {
    text += values.empty() ? " WHERE " : " AND ";
    text += condition;
    values.push_back(value);
  }
};

// A part of a listing that an index gives in its order. SQLite does not use an index for
// "(status, id) < (?, ?)" beyond the first column, so the rows after a position are asked for in
// two parts: those that share its key, and those past it.
enum class Part { kAll, kSameKey, kPastKey };

Sql listing(const ListQuery& query, Part part, const Position& after, std::size_t limit) {
  Sql sql{fmt::format("SELECT {} FROM jobs", kColumns), {}};
  const auto at = [](const std::optional<Time>& time) { return to_epoch_milliseconds(*time); };
  const char* column = sort_column(query.sort_by);
  const char* direction = query.ascending ? "ASC" : "DESC";
  const char past = query.ascending ? '>' : '<';
  if (part != Part::kAll) {
    const bool by_time = query.sort_by == ListQuery::SortBy::kCreationTime ||
                         query.sort_by == ListQuery::SortBy::kModifiedTime;
    const Value key = by_time ? Value{std::int64_t{std::strtoll(after.key.c_str(), nullptr, 10)}}
                              : Value{std::string_view{after.key}};
    sql.where(fmt::format("{} {} ?", column, part == Part::kSameKey ? '=' : past), key);
    if (part == Part::kSameKey) sql.where(fmt::format("id {} ?", past), after.id);
  }
  if (!query.name_contains.empty()) sql.where("instr(name, ?) > 0", query.name_contains);
  if (!query.status_equals.empty()) sql.where("status = ?", query.status_equals);
  if (query.created_after) sql.where("created > ?", at(query.created_after));
  if (query.created_before) sql.where("created < ?", at(query.created_before));
  if (query.modified_after) sql.where("modified > ?", at(query.modified_after));
  if (query.modified_before) sql.where("modified < ?", at(query.modified_before));
  sql.text += fmt::format(" ORDER BY {0} {1}, id {1} LIMIT ?", column, direction);
  // A filter of the caller's decides which rows count.
  sql.values.emplace_back(query.filter ? std::int64_t{-1} : static_cast<std::int64_t>(limit));
  return sql;
}

// Appends up to `limit` rows of the part.
Result<void> read_part(Database& database, const ListQuery& query, Part part, const Position& after,
                       std::size_t limit, std::vector<Row>& found) {
  const Sql sql = listing(query, part, after, limit);
  Rows rows = TRY(database.query(sql.text, sql.values));
  for (std::size_t count = 0; count < limit && TRY(rows.step());) {
    Row row = read_row(rows);
    if (query.filter) {
      TRY(read_rest(database, row));
      if (!query.filter(row.job)) continue;
    }
    found.push_back(std::move(row));
    ++count;
  }
  return {};
}

}  // namespace

struct Store::State {
  std::filesystem::path file;
  StoreOptions options;
  std::mutex write_mutex;
  std::optional<Database> writer;  // under write_mutex
  std::mutex readers_mutex;
  std::vector<Database> readers;  // those at rest; under readers_mutex

  [[nodiscard]] Result<Database> connect() const {
    return Database::open(file, {.name = fmt::format("job store '{}'", file.string()),
                                 .busy_timeout_ms = options.busy_timeout_ms,
                                 .max_pages = options.max_pages});
  }

  // A reading connection, inside a transaction so that all it reads is of one moment.
  class Reader {
   public:
    static Result<Reader> borrow(State& state) {
      std::optional<Database> database;
      {
        const std::scoped_lock lock(state.readers_mutex);
        if (!state.readers.empty()) {
          database = std::move(state.readers.back());
          state.readers.pop_back();
        }
      }
      if (!database) database = TRY(state.connect());
      TRY(database->run("BEGIN"));
      return Reader{state, *std::move(database)};
    }
    Reader(Reader&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)), database_(std::move(other.database_)) {}
    Reader& operator=(Reader&&) = delete;
    ~Reader() {
      // A connection that cannot even end a read is closed instead of kept.
      if (state_ == nullptr || !database_.run("COMMIT")) return;
      const std::scoped_lock lock(state_->readers_mutex);
      state_->readers.push_back(std::move(database_));
    }
    Database& operator*() { return database_; }

   private:
    Reader(State& state, Database database) : state_(&state), database_(std::move(database)) {}
    State* state_;
    Database database_;
  };
};

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(const std::filesystem::path& file,
                                           const StoreOptions& options) {
  auto state = std::make_unique<State>();
  state->file = file;
  state->options = options;
  state->writer = TRY(state->connect());
  TRY(sqlite::migrate(*state->writer, schema()));
  return std::unique_ptr<Store>{new Store{std::move(state)}};
}

Result<std::uint64_t> Store::insert(const TrainingJob& job) {
  const std::scoped_lock lock(state_->write_mutex);
  Database& database = *state_->writer;
  Transaction transaction = TRY(Transaction::begin(database));
  {
    Rows rows = TRY(database.query("SELECT 1 FROM jobs WHERE name = ?", {job.name}));
    if (TRY(rows.step())) {
      return Error{Code::kAlreadyExists,
                   fmt::format("a training job named '{}' exists already", job.name)};
    }
  }
  const std::string warnings = to_text(job.warnings);
  const std::string metrics = to_text(job.final_metrics);
  const std::string terms = to_text(job.terms);
  const std::string attempts = to_text(job.attempts);
  TRY(
      database.run("INSERT INTO jobs VALUES(NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                   "?, ?, ?, ?, ?, ?, ?, ?)",
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
                    attempts}));
  const std::int64_t id = database.last_id();
  TRY(database.run("INSERT INTO requests(job, body) VALUES(?, ?)", {id, job.request_json}));
  TRY(append_transitions(database, id, job, 0));
  TRY(transaction.commit());
  return static_cast<std::uint64_t>(id);
}

Result<void> Store::save(const TrainingJob& job, std::uint64_t loaded_version) {
  const std::scoped_lock lock(state_->write_mutex);
  Database& database = *state_->writer;
  Transaction transaction = TRY(Transaction::begin(database));
  std::int64_t id = 0;
  std::size_t transitions = 0;
  {
    Rows rows = TRY(database.query(
        "SELECT id, version, (SELECT count(*) FROM transitions WHERE job = id) FROM jobs "
        "WHERE name = ?",
        {job.name}));
    if (!TRY(rows.step())) return no_such_job(job.name);
    if (static_cast<std::uint64_t>(rows.integer(1)) != loaded_version) {
      return Error{Code::kAborted,
                   fmt::format("training job '{}' was changed by somebody else", job.name),
                   Retry::kYes};
    }
    id = rows.integer(0);
    transitions = static_cast<std::size_t>(rows.integer(2));
  }
  const std::string warnings = to_text(job.warnings);
  const std::string metrics = to_text(job.final_metrics);
  const std::string attempts = to_text(job.attempts);
  TRY(database.run(
      "UPDATE jobs SET status = ?, secondary_status = ?, failure_reason = ?, modified = ?, "
      "started = ?, ended = ?, limits = ?, warnings = ?, final_metrics = ?, admitted = ?, "
      "stop_requested = ?, journal_sequence = ?, version = ?, attempts = ? WHERE id = ?",
      {job.status, job.secondary_status, job.failure_reason, to_epoch_milliseconds(job.modified),
       or_null(job.started), or_null(job.ended), job.limits, warnings, metrics,
       std::int64_t{job.admitted}, std::int64_t{job.stop_requested},
       static_cast<std::int64_t>(job.journal_sequence), static_cast<std::int64_t>(job.version),
       attempts, id}));
  TRY(append_transitions(database, id, job, transitions));
  return transaction.commit();
}

Result<void> Store::replace_request(const std::string& name, std::uint64_t loaded_version,
                                    const std::string& request_json, std::optional<Time> modified) {
  const std::scoped_lock lock(state_->write_mutex);
  Database& database = *state_->writer;
  Transaction transaction = TRY(Transaction::begin(database));
  const std::int64_t id = TRY(id_at_version(database, name, loaded_version));
  TRY(database.run(
      "UPDATE jobs SET version = version + 1, modified = max(modified, coalesce(?, modified)) "
      "WHERE id = ?",
      {or_null(modified), id}));
  TRY(database.run(
      "UPDATE requests SET created_as = coalesce(created_as, body), body = ? WHERE job = ?",
      {request_json, id}));
  return transaction.commit();
}

Result<std::string> Store::created_as(const std::string& name) {
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  Rows rows = TRY((*reader).query(
      "SELECT coalesce(created_as, body) FROM requests JOIN jobs ON id = job WHERE name = ?",
      {name}));
  if (!TRY(rows.step())) return no_such_job(name);
  return rows.text(0);
}

Result<void> Store::remove(const std::string& name, std::uint64_t loaded_version) {
  const std::scoped_lock lock(state_->write_mutex);
  Database& database = *state_->writer;
  Transaction transaction = TRY(Transaction::begin(database));
  const std::int64_t id = TRY(id_at_version(database, name, loaded_version));
  TRY(database.run("DELETE FROM transitions WHERE job = ?", {id}));
  TRY(database.run("DELETE FROM requests WHERE job = ?", {id}));
  TRY(database.run("DELETE FROM jobs WHERE id = ?", {id}));
  TRY(database.run("INSERT OR REPLACE INTO removed VALUES(?)", {name}));
  return transaction.commit();
}

Result<std::vector<std::string>> Store::removed() {
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  std::vector<std::string> names;
  Rows rows = TRY((*reader).query("SELECT name FROM removed"));
  while (TRY(rows.step())) names.push_back(rows.text(0));
  return names;
}

Result<void> Store::forget_removed(const std::string& name) {
  const std::scoped_lock lock(state_->write_mutex);
  TRY(state_->writer->run("DELETE FROM removed WHERE name = ?", {name}));
  return {};
}

Result<TrainingJob> Store::load(const std::string& name) {
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  Row row;
  {
    static const std::string sql = fmt::format("SELECT {} FROM jobs WHERE name = ?", kColumns);
    Rows rows = TRY((*reader).query(sql, {name}));
    if (!TRY(rows.step())) return no_such_job(name);
    row = read_row(rows);
  }
  TRY(read_rest(*reader, row));
  return std::move(row.job);
}

Result<std::vector<TrainingJob>> Store::load_active() {
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  std::vector<Row> found;
  {
    Rows rows = TRY((*reader).query(fmt::format(
        "SELECT {} FROM jobs WHERE status IN ('InProgress', 'Stopping') ORDER BY id", kColumns)));
    while (TRY(rows.step())) found.push_back(read_row(rows));
  }
  std::vector<TrainingJob> jobs;
  for (Row& row : found) {
    TRY(read_rest(*reader, row));
    jobs.push_back(std::move(row.job));
  }
  return jobs;
}

Result<JobPage> Store::list(const ListQuery& query) {
  Position after;
  if (!query.next_token.empty()) after = TRY(parse_token(query));
  const std::size_t limit = std::clamp<std::size_t>(query.max_results, 1, 1000);
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  std::vector<Row> found;  // one more than the page: it says whether there is a next one
  if (query.next_token.empty()) {
    TRY(read_part(*reader, query, Part::kAll, after, limit + 1, found));
  } else {
    TRY(read_part(*reader, query, Part::kSameKey, after, limit + 1, found));
    if (found.size() <= limit) {
      TRY(read_part(*reader, query, Part::kPastKey, after, limit + 1 - found.size(), found));
    }
  }
  JobPage page;
  if (found.size() > limit) {
    found.pop_back();
    page.next_token =
        make_token(query, {sort_key(query.sort_by, found.back().job), found.back().id});
  }
  for (Row& row : found) page.jobs.push_back(std::move(row.job));
  return page;
}

Result<std::vector<TrainingJob>> Store::with_log_stream(const std::string& prefix) {
  // Everything from `prefix` to the first string that does not start with it; stream names are
  // ASCII, so the highest character is past all of them.
  const std::string end = prefix + "\x7f";
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  Rows rows = TRY(
      (*reader).query(fmt::format("SELECT {} FROM jobs WHERE log_stream >= ? AND log_stream < ? "
                                  "ORDER BY log_stream",
                                  kColumns),
                      {std::string_view{prefix}, std::string_view{end}}));
  std::vector<TrainingJob> jobs;
  while (TRY(rows.step())) jobs.push_back(read_row(rows).job);
  return jobs;
}

}  // namespace atelier::jobs
