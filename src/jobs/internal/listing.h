// A listing's SQL, and the tokens that say where its next page goes on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "jobs/store.h"
#include "sqlite/sqlite.h"

namespace atelier::jobs::internal {

// The place in a listing where a page ended: the sort key and id of its last row.
struct Position {
  std::string key;
  std::int64_t id = 0;
};

// A token holds what the listing was of, so that one of another listing is refused.
std::string make_token(const ListQuery& query, const Position& position);
// kInvalidArgument when it is not a token of this listing.
Result<Position> parse_token(const ListQuery& query);

// The sort key of a job, as a Position has it.
std::string sort_key(ListQuery::SortBy sort_by, const JobSummary& job);

struct Sql {
  std::string text;
  std::vector<sqlite::Value> values;  // views of what it was made from
  void where(std::string_view condition, sqlite::Value value);
};

// A part of a listing that an index gives in its order. SQLite does not use an index for
// "(status, id) < (?, ?)" beyond the first column, so the rows after a position are asked for in
// two parts: those that share its key, and those past it.
enum class Part { kAll, kSameKey, kPastKey };

Sql listing_sql(std::string_view columns, const ListQuery& query, Part part, const Position& after,
                std::int64_t limit);

}  // namespace atelier::jobs::internal
