#include "jobs/internal/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include "base/log.h"

namespace atelier::jobs::sqlite {
namespace {

Error error_of(sqlite3* database, std::string_view doing) {
  const char* path = sqlite3_db_filename(database, "main");
  const std::string message = fmt::format("job store '{}': {}: {}", path == nullptr ? "" : path,
                                          doing, sqlite3_errmsg(database));
  switch (sqlite3_errcode(database) & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error{Code::kUnavailable, message + " (another process uses it; try again)",
                   Retry::kYes};
    case SQLITE_FULL:
      return Error{Code::kResourceExhausted,
                   message + " (nothing was changed; free some space and try again)", Retry::kYes};
    case SQLITE_CONSTRAINT:
      return Error{Code::kAlreadyExists, message};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Error{Code::kDataLoss, message};
    case SQLITE_NOMEM:
      return Error{Code::kResourceExhausted, message};
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return Error{Code::kIo, message};
    default:
      return Error{Code::kInternal, message};
  }
}

struct Binder {
  sqlite3_stmt* statement;
  int index;
  int operator()(std::nullptr_t) const { return sqlite3_bind_null(statement, index); }
  int operator()(std::int64_t value) const { return sqlite3_bind_int64(statement, index, value); }
  int operator()(double value) const { return sqlite3_bind_double(statement, index, value); }
  int operator()(std::string_view value) const {
    return sqlite3_bind_text64(statement, index, value.data() == nullptr ? "" : value.data(),
                               value.size(), SQLITE_STATIC, SQLITE_UTF8);
  }
};

}  // namespace

Rows::~Rows() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Result<bool> Rows::step() {
  switch (sqlite3_step(statement_)) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return error_of(database_, "statement");
  }
}

std::int64_t Rows::integer(int column) const { return sqlite3_column_int64(statement_, column); }
double Rows::number(int column) const { return sqlite3_column_double(statement_, column); }
bool Rows::null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
std::string Rows::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

Result<Database> Database::open(const std::filesystem::path& path, int busy_timeout_ms,
                                std::int64_t max_pages) {
  sqlite3* handle = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int opened = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  Database database{handle};
  if (opened != SQLITE_OK) {
    return Error{Code::kIo,
                 fmt::format("job store '{}': {}", path.string(),
                             handle == nullptr ? "out of memory" : sqlite3_errmsg(handle))};
  }
  sqlite3_busy_timeout(handle, busy_timeout_ms);
  TRY(database.script("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"));
  if (max_pages > 0) TRY(database.script(fmt::format("PRAGMA max_page_count={}", max_pages)));
  return database;
}

Database::Database(Database&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), statements_(std::move(other.statements_)) {
  other.statements_.clear();
}

Database& Database::operator=(Database&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(statements_, other.statements_);
  return *this;
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

Result<Rows> Database::prepared(std::string_view sql, const Value* values, std::size_t count) {
  sqlite3_stmt*& statement = statements_[std::string{sql}];
  if (statement == nullptr &&
      sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
    return error_of(handle_, "prepare");
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (std::visit(Binder{statement, static_cast<int>(i) + 1}, values[i]) != SQLITE_OK) {
      return error_of(handle_, "bind");
    }
  }
  return Rows{handle_, statement};
}

Result<Rows> Database::query(std::string_view sql, std::initializer_list<Value> values) {
  return prepared(sql, values.begin(), values.size());
}

Result<Rows> Database::query(std::string_view sql, const std::vector<Value>& values) {
  return prepared(sql, values.data(), values.size());
}

Result<std::int64_t> Database::run(std::string_view sql, std::initializer_list<Value> values) {
  Rows rows = TRY(query(sql, values));
  while (TRY(rows.step())) {
  }
  return sqlite3_changes(handle_);
}

Result<void> Database::script(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return error_of(handle_, "script");
  }
  return {};
}

std::int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_); }

Result<Transaction> Transaction::begin(Database& database) {
  TRY(database.run("BEGIN IMMEDIATE"));
  return Transaction{database};
}

Transaction::~Transaction() {
  if (database_ == nullptr) return;
  // SQLite has rolled back by itself after some errors; then this says so, and nothing is open.
  ignore_error(database_->run("ROLLBACK"), "what made us give up is reported already");
}

Result<void> Transaction::commit() {
  TRY(database_->run("COMMIT"));
  database_ = nullptr;
  return {};
}

Result<void> migrate(Database& database, const std::vector<std::string>& steps) {
  const auto version_of = [&]() -> Result<std::size_t> {
    Rows rows = TRY(database.query("PRAGMA user_version"));
    TRY(rows.step());
    return static_cast<std::size_t>(rows.integer(0));
  };
  while (true) {
    Transaction transaction = TRY(Transaction::begin(database));
    const std::size_t version = TRY(version_of());
    if (version > steps.size()) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("the job store has schema version {}; this program knows versions "
                               "up to {}: use the program that wrote it, or a later one",
                               version, steps.size())};
    }
    if (version == steps.size()) return {};
    TRY(database.script(steps[version]));
    TRY(database.script(fmt::format("PRAGMA user_version={}", version + 1)));
    TRY(transaction.commit());
  }
}

}  // namespace atelier::jobs::sqlite
