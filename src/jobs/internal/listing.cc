#include "jobs/internal/listing.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/hash.h"
#include "base/json.h"

namespace atelier::jobs::internal {
namespace {

using sqlite::Value;

std::string fingerprint(const ListQuery& query) {
  const auto time = [](const std::optional<Time>& value) {
    return value ? std::to_string(to_epoch_milliseconds(*value)) : std::string{"-"};
  };
  const std::string text =
      fmt::format("{}\n{}\n{} {} {} {} {} {}", query.name_contains, query.status_equals,
                  time(query.created_after), time(query.created_before), time(query.modified_after),
                  time(query.modified_before), static_cast<int>(query.sort_by), query.ascending) +
      query.warm_status_equals + query.filter_id;
  return sha256_hex(text).substr(0, 16);
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

}  // namespace

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

std::string sort_key(ListQuery::SortBy sort_by, const JobSummary& job) {
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

void Sql::where(std::string_view condition, Value value) {
  text += values.empty() ? " WHERE " : " AND ";
  text += condition;
  values.push_back(value);
}

Sql listing_sql(std::string_view columns, const ListQuery& query, Part part, const Position& after,
                std::int64_t limit) {
  Sql sql{fmt::format("SELECT {} FROM jobs", columns), {}};
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
  if (!query.warm_status_equals.empty()) {
    sql.where("warm_status = ? AND warm_status <> ''", query.warm_status_equals);
  }
  if (query.created_after) sql.where("created > ?", at(query.created_after));
  if (query.created_before) sql.where("created < ?", at(query.created_before));
  if (query.modified_after) sql.where("modified > ?", at(query.modified_after));
  if (query.modified_before) sql.where("modified < ?", at(query.modified_before));
  sql.text += fmt::format(" ORDER BY {0} {1}, id {1} LIMIT ?", column, direction);
  sql.values.emplace_back(limit);
  return sql;
}

}  // namespace atelier::jobs::internal
