// SQLite as Results: a connection, and statements that it prepares once and lends again and again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace atelier::objects::internal {

class Connection;

// A prepared statement on loan; it is reset when this goes. Columns and parameters count as
// SQLite's do: columns from 0, parameters from 1.
class Statement {
 public:
  Statement(Connection& connection, sqlite3_stmt* handle)
      : connection_(&connection), handle_(handle) {}
  Statement(Statement&& other) noexcept
      : connection_(other.connection_), handle_(std::exchange(other.handle_, nullptr)) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // What is bound by view must live until the last step.
  Statement& bind(int index, std::int64_t value);
  Statement& bind_blob(int index, std::string_view value);
  Statement& bind_text(int index, std::string_view value);
  Statement& bind_null(int index);
  // True when there is a row, false at the end.
  Result<bool> step();
  Result<void> run();  // step() for statements without rows
  // Ready for other parameters.
  void reset();

  [[nodiscard]] std::int64_t integer(int column) const;
  // Valid until the next step.
  [[nodiscard]] std::string_view bytes(int column) const;
  [[nodiscard]] bool is_null(int column) const;

 private:
  Connection* connection_;
  sqlite3_stmt* handle_;
};

// Used by one thread at a time.
class Connection {
 public:
  static Result<Connection> open(const std::filesystem::path& path);
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) = delete;
  ~Connection();

  Result<void> execute(const char* sql);
  // `sql` must be a literal: prepared statements are kept by its address.
  Result<Statement> prepare(const char* sql);
  [[nodiscard]] std::int64_t last_row_id() const;
  // Rows changed since the connection was opened.
  [[nodiscard]] std::int64_t total_changes() const;
  // The Error of the last call. A full disk is kResourceExhausted.
  [[nodiscard]] Error error(int status, std::string_view what) const;

 private:
  explicit Connection(sqlite3* handle) : handle_(handle) {}
  sqlite3* handle_;
  std::unordered_map<const char*, sqlite3_stmt*> statements_;
};

}  // namespace atelier::objects::internal
