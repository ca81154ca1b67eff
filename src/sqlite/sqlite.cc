#include "sqlite/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>

namespace atelier::sqlite {
namespace {

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
  int operator()(const Blob& value) const {
    // A null pointer would bind NULL instead of an empty blob.
    return sqlite3_bind_blob64(statement, index,
                               value.bytes.data() == nullptr ? "" : value.bytes.data(),
                               value.bytes.size(), SQLITE_STATIC);
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
      return database_->error(sqlite3_sql(statement_));
  }
}

std::int64_t Rows::integer(int column) const { return sqlite3_column_int64(statement_, column); }
double Rows::number(int column) const { return sqlite3_column_double(statement_, column); }
bool Rows::null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
std::string Rows::text(int column) const { return std::string{bytes(column)}; }

std::string_view Rows::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  if (data == nullptr) return {};
  return {static_cast<const char*>(data),
          static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

Result<Database> Database::open(const std::filesystem::path& path, Options options) {
  sqlite3* handle = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int opened = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  Database database{handle, std::move(options.name)};
  if (handle == nullptr) return Error{Code::kResourceExhausted, database.name_ + ": out of memory"};
  if (opened != SQLITE_OK) return database.error("open '" + path.string() + "'");
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, options.busy_timeout_ms);
  TRY(database.script(options.pragmas +
                      "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"));
  if (options.max_pages > 0) {
    TRY(database.script(fmt::format("PRAGMA max_page_count={}", options.max_pages)));
  }
  return database;
}

Database::Database(Database&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      name_(std::move(other.name_)),
      statements_(std::move(other.statements_)) {
  other.statements_.clear();
}

Database& Database::operator=(Database&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(name_, other.name_);
  std::swap(statements_, other.statements_);
  return *this;
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

Result<Rows> Database::prepared(std::string_view sql, const Value* values, std::size_t count) {
  auto at = statements_.find(sql);
  if (at == statements_.end()) {
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                           SQLITE_PREPARE_PERSISTENT, &made, nullptr) != SQLITE_OK) {
      return error(sql);
    }
    at = statements_.emplace(sql, made).first;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (std::visit(Binder{at->second, static_cast<int>(i) + 1}, values[i]) != SQLITE_OK) {
      return error(sql);
    }
  }
  return Rows{*this, at->second};
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
    return error(sql);
  }
  return {};
}

std::int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_); }

std::int64_t Database::total_changes() const { return sqlite3_total_changes64(handle_); }

namespace {

bool disk_is_full(sqlite3* handle, int status) {
  const int cause = sqlite3_system_errno(handle);
  return status == SQLITE_FULL || (status == SQLITE_IOERR && (cause == ENOSPC || cause == EDQUOT));
}

Code code_of(int status) {
  switch (status) {
    case SQLITE_NOMEM:
      return Code::kResourceExhausted;
    case SQLITE_CONSTRAINT:
      return Code::kAlreadyExists;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kDataLoss;
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return Code::kIo;
    default:
      return Code::kInternal;
  }
}

}  // namespace

Error Database::error(std::string_view doing) const {
  const int status = sqlite3_errcode(handle_) & 0xFF;
  const std::string text = sqlite3_errmsg(handle_);
  if (disk_is_full(handle_, status)) {
    return Error{
        Code::kResourceExhausted,
        fmt::format("{}: {} (nothing was changed; free some space and try again)", name_, text),
        Retry::kYes};
  }
  if (status == SQLITE_BUSY || status == SQLITE_LOCKED) {
    return Error{Code::kUnavailable,
                 fmt::format("{}: {} (another process uses it; try again)", name_, text),
                 Retry::kYes};
  }
  return Error{code_of(status), fmt::format("{}: {} (while: {})", name_, text, doing)};
}

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
      return Error{
          Code::kFailedPrecondition,
          fmt::format("{} has schema version {}; this program knows versions up to {}: use "
                      "the program that wrote it, or a later one",
                      database.name(), version, steps.size())};
    }
    if (version == steps.size()) return {};
    TRY(database.script(steps[version]));
    TRY(database.script(fmt::format("PRAGMA user_version={}", version + 1)));
    TRY(transaction.commit());
  }
}

}  // namespace atelier::sqlite
