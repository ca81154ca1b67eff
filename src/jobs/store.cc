#include "jobs/store.h"

#include <fmt/format.h>

#include "jobs/internal/job_rows.h"
#include "jobs/internal/record_text.h"
#include "jobs/internal/store_schema.h"
#include "jobs/internal/store_state.h"
#include "sqlite/sqlite.h"

namespace atelier::jobs {
namespace {

using internal::no_such_job;
using sqlite::Database;
using sqlite::Rows;
using sqlite::Transaction;
using sqlite::Value;

Error changed_meanwhile(const std::string& name) {
  return Error{Code::kAborted, fmt::format("training job '{}' was changed by somebody else", name),
               Retry::kYes};
}

// The row of a job that is still at `version`.
Result<std::int64_t> id_at_version(Database& database, const std::string& name,
                                   std::uint64_t version) {
  Rows rows = TRY(database.query("SELECT id, version FROM jobs WHERE name = ?", {name}));
  if (!TRY(rows.step())) return no_such_job(name);
  if (static_cast<std::uint64_t>(rows.integer(1)) != version) return changed_meanwhile(name);
  return rows.integer(0);
}

// Inside a transaction.
Result<void> save_change(Database& database, const Store::Change& change) {
  const std::int64_t id = TRY(id_at_version(database, change.job.name, change.loaded_version));
  std::size_t transitions = 0;
  {
    Rows rows = TRY(database.query("SELECT count(*) FROM transitions WHERE job = ?", {id}));
    TRY(rows.step());
    transitions = static_cast<std::size_t>(rows.integer(0));
  }
  return internal::update_job(database, id, change.job, transitions);
}

}  // namespace

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(const std::filesystem::path& file,
                                           const StoreOptions& options) {
  auto state = std::make_unique<State>();
  state->file = file;
  state->options = options;
  const auto begin = [&]() -> Result<void> {
    state->writer = TRY(state->connect());
    return sqlite::migrate(*state->writer, internal::store_schema());
  };
  state->reserve = TRY(internal::Reserve::open(file.string() + "-reserve"));
  Result<void> begun = begin();
  if (!begun && begun.error().code == Code::kResourceExhausted && state->reserve->give_up()) {
    begun = begin();
  }
  TRY(std::move(begun));
  return std::unique_ptr<Store>{new Store{std::move(state)}};
}

Result<std::uint64_t> Store::insert(const TrainingJob& job, const std::optional<Change>& taken) {
  const State::Writing writing(*state_);
  Database& database = *state_->writer;
  Transaction transaction = TRY(Transaction::begin(database));
  {
    Rows rows = TRY(database.query("SELECT 1 FROM jobs WHERE name = ?", {job.name}));
    if (TRY(rows.step())) {
      return Error{Code::kAlreadyExists,
                   fmt::format("a training job named '{}' exists already", job.name)};
    }
  }
  const std::int64_t id = TRY(internal::insert_job(database, job));
  if (taken) TRY(save_change(database, *taken));
  TRY(transaction.commit());
  return static_cast<std::uint64_t>(id);
}

Result<void> Store::save(const TrainingJob& job, std::uint64_t loaded_version,
                         const std::optional<Change>& taken) {
  return state_->write([&](Database& database) -> Result<void> {
    Transaction transaction = TRY(Transaction::begin(database));
    TRY(save_change(database, {job, loaded_version}));
    if (taken) TRY(save_change(database, *taken));
    return transaction.commit();
  });
}

Result<void> Store::replace_request(const std::string& name, std::uint64_t loaded_version,
                                    const std::string& request_json, std::optional<Time> modified,
                                    const WarmPool& warm) {
  const std::string warm_text = internal::to_text(warm);
  return state_->write([&](Database& database) -> Result<void> {
    Transaction transaction = TRY(Transaction::begin(database));
    const std::int64_t id = TRY(id_at_version(database, name, loaded_version));
    TRY(database.run(
        "UPDATE jobs SET version = version + 1, modified = max(modified, coalesce(?, modified)), "
        "warm_status = ?, warm = ? WHERE id = ?",
        {modified ? Value{to_epoch_milliseconds(*modified)} : Value{nullptr}, warm.status,
         warm_text, id}));
    TRY(database.run(
        "UPDATE requests SET created_as = coalesce(created_as, body), body = ? WHERE job = ?",
        {request_json, id}));
    return transaction.commit();
  });
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
  return state_->write([&](Database& database) -> Result<void> {
    Transaction transaction = TRY(Transaction::begin(database));
    const std::int64_t id = TRY(id_at_version(database, name, loaded_version));
    TRY(database.run("DELETE FROM transitions WHERE job = ?", {id}));
    TRY(database.run("DELETE FROM requests WHERE job = ?", {id}));
    TRY(database.run("DELETE FROM jobs WHERE id = ?", {id}));
    TRY(database.run("INSERT OR REPLACE INTO removed VALUES(?)", {name}));
    return transaction.commit();
  });
}

Result<std::vector<std::string>> Store::removed() {
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  std::vector<std::string> names;
  Rows rows = TRY((*reader).query("SELECT name FROM removed"));
  while (TRY(rows.step())) names.push_back(rows.text(0));
  return names;
}

Result<bool> Store::is_removed(const std::string& name) {
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  Rows rows = TRY((*reader).query("SELECT 1 FROM removed WHERE name = ?", {name}));
  return rows.step();
}

Result<void> Store::forget_removed(const std::string& name) {
  return state_->write([&](Database& database) -> Result<void> {
    TRY(database.run("DELETE FROM removed WHERE name = ?", {name}));
    return {};
  });
}

Result<TrainingJob> Store::load(const std::string& name) {
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  TrainingJob job;
  {
    static const std::string sql =
        fmt::format("SELECT {} FROM jobs WHERE name = ?", internal::kJobColumns);
    Rows rows = TRY((*reader).query(sql, {name}));
    if (!TRY(rows.step())) return no_such_job(name);
    job = internal::read_job(rows);
  }
  TRY(internal::read_transitions(*reader, job));
  return job;
}

Result<RecordVersion> Store::version(const std::string& name) {
  const auto generation = state_->versions.generation();
  if (const auto known = state_->versions.find(name)) return *known;
  State::Reader reader = TRY(State::Reader::borrow(*state_, State::Reader::Reads::kOnce));
  Rows rows = TRY((*reader).query("SELECT id, version FROM jobs WHERE name = ?", {name}));
  if (!TRY(rows.step())) return no_such_job(name);
  const RecordVersion version{static_cast<std::uint64_t>(rows.integer(0)),
                              static_cast<std::uint64_t>(rows.integer(1))};
  state_->versions.keep(name, version, generation);
  return version;
}

Result<std::vector<TrainingJob>> Store::load_active() {
  return load_where("status IN ('InProgress', 'Stopping')");
}

Result<std::vector<TrainingJob>> Store::load_warm() {
  return load_where("warm_status = 'Available'");
}

Result<bool> Store::has_terminated_pool(const std::string& pool) {
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  Rows rows = TRY((*reader).query(
      "SELECT warm_status, warm FROM jobs WHERE warm_status = 'Terminated' AND instr(warm, ?) > 0",
      {pool}));
  while (TRY(rows.step())) {
    if (internal::warm_from_text(rows.text(0), rows.text(1)).name == pool) return true;
  }
  return false;
}

Result<std::vector<TrainingJob>> Store::load_where(std::string_view condition) {
  State::Reader reader = TRY(State::Reader::borrow(*state_));
  std::vector<TrainingJob> jobs;
  Rows rows = TRY((*reader).query(
      fmt::format("SELECT {} FROM jobs WHERE {} ORDER BY id", internal::kJobColumns, condition)));
  while (TRY(rows.step())) {
    jobs.push_back(internal::read_job(rows));
    TRY(internal::read_transitions(*reader, jobs.back()));
  }
  return jobs;
}

}  // namespace atelier::jobs
