// A store's connections; private to store.cc and store_list.cc.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "jobs/internal/reserve.h"
#include "jobs/internal/version_cache.h"
#include "jobs/store.h"
#include "sqlite/sqlite.h"

namespace atelier::jobs {

struct Store::State {
  std::filesystem::path file;
  StoreOptions options;
  std::mutex write_mutex;
  std::optional<sqlite::Database> writer;    // under write_mutex
  std::optional<internal::Reserve> reserve;  // under write_mutex
  std::mutex readers_mutex;
  std::vector<sqlite::Database> readers;  // those at rest; under readers_mutex
  internal::VersionCache versions;

  // Held by who changes the store, from before its transaction to after its end, well or not.
  class Writing {
   public:
    explicit Writing(State& state) : state_(state), lock_(state.write_mutex) {}
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;
    ~Writing() { state_.versions.changed(); }

   private:
    State& state_;
    std::scoped_lock<std::mutex> lock_;
  };

  // A change that ends something, and so may make room: on a full disk it is made at the expense of
  // the reserve.
  template <typename Change>
  Result<void> write(const Change& change) {
    const Writing writing(*this);
    Result<void> done = change(*writer);
    if (!done && done.error().code == Code::kResourceExhausted && reserve->give_up()) {
      done = change(*writer);
    }
    if (done) reserve->keep();
    return done;
  }

  [[nodiscard]] Result<sqlite::Database> connect() const {
    return sqlite::Database::open(file, {.name = fmt::format("job store '{}'", file.string()),
                                         .busy_timeout_ms = options.busy_timeout_ms,
                                         .max_pages = options.max_pages});
  }

  // A reading connection. What several statements read is of one moment by a transaction; one
  // statement is that by itself.
  class Reader {
   public:
    enum class Reads { kOnce, kOften };
    static Result<Reader> borrow(State& state, Reads reads = Reads::kOften) {
      std::optional<sqlite::Database> database;
      {
        const std::scoped_lock lock(state.readers_mutex);
        if (!state.readers.empty()) {
          database = std::move(state.readers.back());
          state.readers.pop_back();
        }
      }
      if (!database) database = TRY(state.connect());
      if (reads == Reads::kOften) TRY(database->run("BEGIN"));
      return Reader{state, *std::move(database), reads};
    }
    Reader(Reader&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)),
          database_(std::move(other.database_)),
          reads_(other.reads_) {}
    Reader& operator=(Reader&&) = delete;
    ~Reader() {
      // A connection that cannot even end a read is closed instead of kept.
      if (state_ == nullptr || (reads_ == Reads::kOften && !database_.run("COMMIT"))) return;
      const std::scoped_lock lock(state_->readers_mutex);
      state_->readers.push_back(std::move(database_));
    }
    sqlite::Database& operator*() { return database_; }

   private:
    Reader(State& state, sqlite::Database database, Reads reads)
        : state_(&state), database_(std::move(database)), reads_(reads) {}
    State* state_;
    sqlite::Database database_;
    Reads reads_;
  };
};

}  // namespace atelier::jobs
