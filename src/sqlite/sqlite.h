// SQLite as values and Results: a connection, its statements, a transaction that rolls back unless
// it was committed.
//
//   Database database = TRY(Database::open(file, {.name = "job store"}));
//   TRY(database.run("INSERT INTO jobs VALUES(?, ?)", {id, name}));
//   Rows rows = TRY(database.query("SELECT name FROM jobs WHERE id = ?", {id}));
//   while (TRY(rows.step())) use(rows.text(0));
//
// A connection and its rows belong to one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace atelier::sqlite {

// Bytes that are not text: keys in any encoding, bodies.
struct Blob {
  explicit Blob(std::string_view value) : bytes(value) {}
  std::string_view bytes;
};
using Value = std::variant<std::nullptr_t, std::int64_t, double, std::string_view, Blob>;

class Database;

// A statement that runs: step() to each row, then read its columns, counted from 0. Resets itself.
// The Database may not be moved meanwhile, and the same statement runs once at a time.
class Rows {
 public:
  Rows(const Database& database, sqlite3_stmt* statement)
      : database_(&database), statement_(statement) {}
  Rows(Rows&& other) noexcept
      : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}
  Rows& operator=(Rows&&) = delete;
  ~Rows();
  Result<bool> step();  // false: no more rows
  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] double number(int column) const;
  [[nodiscard]] std::string text(int column) const;
  // Of text or a blob, until the next step; NULL is empty.
  [[nodiscard]] std::string_view bytes(int column) const;
  [[nodiscard]] bool null(int column) const;

 private:
  const Database* database_;
  sqlite3_stmt* statement_;
};

struct Options {
  std::string name = "database";  // what messages call it
  int busy_timeout_ms = 5000;     // of patience with other connections
  // More pages than this are kResourceExhausted, as a full disk is; 0 sets no limit.
  std::int64_t max_pages = 0;
  std::string pragmas{};  // set first: some only work on an empty file
};

class Database {
 public:
  // Opens or creates the file: WAL, synchronous=FULL (a commit survives a power cut).
  static Result<Database> open(const std::filesystem::path& path, Options options = {});
  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;
  ~Database();

  // Statements are prepared once and kept by their text. What is bound must live until the last
  // step.
  Result<Rows> query(std::string_view sql, std::initializer_list<Value> values = {});
  Result<Rows> query(std::string_view sql, const std::vector<Value>& values);
  // Runs to the end; the number of rows changed.
  Result<std::int64_t> run(std::string_view sql, std::initializer_list<Value> values = {});
  // Several statements without values.
  Result<void> script(const std::string& sql);
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t last_id() const;
  // Rows changed since it was opened.
  [[nodiscard]] std::int64_t total_changes() const;
  // The Error of the last call. A full disk is kResourceExhausted, another connection's lock
  // kUnavailable, a broken file kDataLoss, a constraint kAlreadyExists.
  [[nodiscard]] Error error(std::string_view doing) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  Database(sqlite3* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  Result<Rows> prepared(std::string_view sql, const Value* values, std::size_t count);

  sqlite3* handle_ = nullptr;
  std::string name_;
  std::unordered_map<std::string, sqlite3_stmt*, Hash, std::equal_to<>> statements_;
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

}  // namespace atelier::sqlite
