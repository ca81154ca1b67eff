#include "objects/internal/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>

namespace atelier::objects::internal {

Statement::~Statement() {
  if (handle_ != nullptr) {
    reset();
    sqlite3_clear_bindings(handle_);
  }
}

Statement& Statement::bind(int index, std::int64_t value) {
  sqlite3_bind_int64(handle_, index, value);
  return *this;
}

Statement& Statement::bind_blob(int index, std::string_view value) {
  // A null pointer would bind NULL instead of an empty blob.
  sqlite3_bind_blob64(handle_, index, value.data() == nullptr ? "" : value.data(), value.size(),
                      SQLITE_STATIC);
  return *this;
}

Statement& Statement::bind_text(int index, std::string_view value) {
  sqlite3_bind_text64(handle_, index, value.data() == nullptr ? "" : value.data(), value.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Statement& Statement::bind_null(int index) {
  sqlite3_bind_null(handle_, index);
  return *this;
}

Result<bool> Statement::step() {
  const int status = sqlite3_step(handle_);
  if (status == SQLITE_ROW) return true;
  if (status == SQLITE_DONE) return false;
  return connection_->error(status, sqlite3_sql(handle_));
}

Result<void> Statement::run() {
  TRY(step());
  return {};
}

void Statement::reset() { sqlite3_reset(handle_); }

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(handle_, column); }

std::string_view Statement::bytes(int column) const {
  const void* data = sqlite3_column_blob(handle_, column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_, column));
  return data == nullptr ? std::string_view{}
                         : std::string_view{static_cast<const char*>(data), size};
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}

Result<Connection> Connection::open(const std::filesystem::path& path) {
  sqlite3* handle = nullptr;
  const int status =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  Connection connection{handle};
  if (status != SQLITE_OK) return connection.error(status, "open '" + path.string() + "'");
  sqlite3_extended_result_codes(handle, 1);
  // Only ever waited for while the log is recovered or moved into the database.
  sqlite3_busy_timeout(handle, 10'000);
  TRY(
      connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                         "PRAGMA wal_autocheckpoint=4000; PRAGMA journal_size_limit=67108864;"
                         "PRAGMA temp_store=MEMORY; PRAGMA cell_size_check=ON;"));
  return connection;
}

Connection::Connection(Connection&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), statements_(std::move(other.statements_)) {
  other.statements_.clear();
}

Connection::~Connection() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

Result<void> Connection::execute(const char* sql) {
  const int status = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (status != SQLITE_OK) return error(status, sql);
  return {};
}

Result<Statement> Connection::prepare(const char* sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    const int status =
        sqlite3_prepare_v3(handle_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (status != SQLITE_OK) return error(status, sql);
  }
  return Statement{*this, statement};
}

std::int64_t Connection::last_row_id() const { return sqlite3_last_insert_rowid(handle_); }

std::int64_t Connection::total_changes() const { return sqlite3_total_changes64(handle_); }

Error Connection::error(int status, std::string_view what) const {
  const int primary = status & 0xFF;
  const int cause = handle_ == nullptr ? 0 : sqlite3_system_errno(handle_);
  const std::string text = handle_ == nullptr ? std::string{sqlite3_errstr(status)}
                                              : std::string{sqlite3_errmsg(handle_)};
  const bool full =
      primary == SQLITE_FULL || (primary == SQLITE_IOERR && (cause == ENOSPC || cause == EDQUOT));
  if (full) {
    return Error{
        Code::kResourceExhausted,
        fmt::format("InsufficientStorage: the disk of the object index is full ({})", text)};
  }
  const Code code = primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB ? Code::kDataLoss
                    : primary == SQLITE_BUSY                              ? Code::kUnavailable
                                                                          : Code::kIo;
  return Error{code, fmt::format("object index: {} (SQLite {}, while: {})", text, status, what)};
}

}  // namespace atelier::objects::internal
