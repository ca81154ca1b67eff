#include "cli/cost_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/json.h"

namespace atelier::cli {
namespace {

constexpr std::string_view kTag = "tag:";
constexpr std::string_view kUntagged = "(without the tag)";

std::string tag_of(const json::value& job, std::string_view key) {
  const json::array* tags = find_array(job, "Tags");
  if (tags == nullptr) return std::string{kUntagged};
  for (const json::value& tag : *tags) {
    if (find_string(tag, "Key") == key) return find_string(tag, "Value").value_or("");
  }
  return std::string{kUntagged};
}

std::string key_of(const json::value& job, std::string_view by) {
  if (by == "day") {
    const Time created = from_epoch_seconds(find_number(job, "CreationTime").value_or(0));
    return format_iso8601(created).substr(0, 10);
  }
  if (by.starts_with(kTag)) return tag_of(job, by.substr(kTag.size()));
  return find_string(job, "TrainingJobName").value_or("");
}

// Costs of one job by price list, named with date and currency.
std::map<std::string, double> elsewhere_of(const json::value& job) {
  std::map<std::string, double> costs;
  const json::array* lists = find_array(job, "Elsewhere");
  if (lists == nullptr) return costs;
  for (const json::value& list : *lists) {
    costs.emplace(fmt::format("{} ({}), {}", find_string(list, "PriceList").value_or(""),
                              find_string(list, "PriceDate").value_or(""),
                              find_string(list, "Currency").value_or("")),
                  find_number(list, "Cost").value_or(0));
  }
  return costs;
}

struct Sum {
  CostRow row;
  std::map<std::string, std::pair<int, double>> elsewhere;  // jobs that the list prices, their cost
};

void add(Sum& sum, const json::value& job) {
  const std::int64_t instances = find_int(job, "InstanceCount").value_or(1);
  CostRow& row = sum.row;
  ++row.jobs;
  row.training_seconds += instances * find_int(job, "TrainingTimeInSeconds").value_or(0);
  row.billable_seconds += instances * find_int(job, "BillableTimeInSeconds").value_or(0);
  row.retained_seconds +=
      instances * find_int(job, "ResourceRetainedBillableTimeInSeconds").value_or(0);
  row.cost += find_number(job, "Cost").value_or(0);
  row.saved += find_number(job, "Saved").value_or(0);
  for (const auto& [list, cost] : elsewhere_of(job)) {
    auto& [jobs, total] = sum.elsewhere[list];
    ++jobs;
    total += cost;
  }
}

}  // namespace

Result<std::string> check_grouping(std::string_view by) {
  if (by == "job" || by == "day" || (by.starts_with(kTag) && by.size() > kTag.size())) {
    return std::string{by};
  }
  return Error{Code::kInvalidArgument,
               fmt::format("--by {}: it must be job, day, or tag:KEY (such as tag:team)", by)};
}

std::vector<CostRow> group_costs(const json::array& costs, std::string_view by) {
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const json::value& job : costs) {
    Sum& sum = sums[{key_of(job, by), find_string(job, "Currency").value_or("")}];
    add(sum, job);
  }
  std::vector<CostRow> rows;
  for (auto& [key, sum] : sums) {
    sum.row.key = key.first;
    sum.row.currency = key.second;
    for (const auto& [list, found] : sum.elsewhere) {
      if (found.first != sum.row.jobs) continue;  // a sum over some of the jobs compares nothing
      sum.row.elsewhere_list = list;
      sum.row.elsewhere = found.second;
      break;
    }
    rows.push_back(std::move(sum.row));
  }
  return rows;
}

Result<Time> parse_since(std::string_view text, Time now) {
  const Error wrong{Code::kInvalidArgument,
                    fmt::format("'{}' is not a time: write 2026-11-30, 2026-11-30T08:00:00Z, or "
                                "how long ago: 7d, 24h, 30m",
                                text)};
  const std::string day = std::string{text} + "T00:00:00Z";
  if (text.size() == 10) {
    const Result<Time> time = parse_iso8601(day);
    return time ? time : Result<Time>{wrong};
  }
  int count = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failure == std::errc{} && end + 1 == text.data() + text.size() && count >= 0 &&
      count <= 100000) {
    if (*end == 'd') return now - std::chrono::days{count};
    if (*end == 'h') return now - std::chrono::hours{count};
    if (*end == 'm') return now - std::chrono::minutes{count};
  }
  const Result<Time> time = parse_iso8601(text);
  return time ? time : Result<Time>{wrong};
}

}  // namespace atelier::cli
