// SQLite as values and Results: a connection, its statements, a transaction that rolls back unless
// it was committed. A connection and its statements belong to one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace atelier::jobs::sqlite {

using Value = std::variant<std::nullptr_t, std::int64_t, double, std::string_view>;

// A statement that runs: step() to each row, then read its columns. Resets itself.
class Rows {
 public:
  Rows(sqlite3* database, sqlite3_stmt* statement) : database_(database), statement_(statement) {}
  Rows(Rows&& other) noexcept
      : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}
  Rows& operator=(Rows&&) = delete;
  ~Rows();
  Result<bool> step();  // false: no more rows
  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] double number(int column) const;
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] bool null(int column) const;

 private:
  sqlite3* database_;
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // Opens or creates the file: WAL, synchronous=FULL (a commit survives a power cut), and
  // `busy_timeout_ms` of patience with other connections. More than `max_pages` pages is
  // kResourceExhausted, as a full disk is; 0 sets no limit.
  static Result<Database> open(const std::filesystem::path& path, int busy_timeout_ms = 5000,
                               std::int64_t max_pages = 0);
  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;
  ~Database();

  // Statements are prepared once and kept by their text. Bound text must live until the last step.
  Result<Rows> query(std::string_view sql, std::initializer_list<Value> values = {});
  Result<Rows> query(std::string_view sql, const std::vector<Value>& values);
  // Runs to the end; the number of rows changed.
  Result<std::int64_t> run(std::string_view sql, std::initializer_list<Value> values = {});
  // Several statements without values.
  Result<void> script(const std::string& sql);
  [[nodiscard]] std::int64_t last_id() const;

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  Result<Rows> prepared(std::string_view sql, const Value* values, std::size_t count);
  sqlite3* handle_ = nullptr;
  std::unordered_map<std::string, sqlite3_stmt*> statements_;
};

// BEGIN IMMEDIATE ... COMMIT; rolls back when destroyed before commit().
class Transaction {
 public:
  static Result<Transaction> begin(Database& database);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Result<void> commit();

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;
};

// Brings a database to the version that `steps` lead to: step i takes version i to i + 1, in one
// transaction with the new version number. A database of a later version is kFailedPrecondition.
Result<void> migrate(Database& database, const std::vector<std::string>& steps);

}  // namespace atelier::jobs::sqlite
