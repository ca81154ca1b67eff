// Sums of what jobs cost, by job, day or tag: the pure part of `atelier cost`.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace atelier::cli {

struct CostRow {
  std::string key;       // job, "2026-11-30", or the tag's value
  std::string currency;  // of cost and saved
  int jobs = 0;
  std::int64_t training_seconds = 0;  // of all instances
  std::int64_t billable_seconds = 0;
  std::int64_t retained_seconds = 0;  // that warm pools were held for nobody
  double cost = 0;
  double saved = 0;
  double elsewhere = 0;        // by the first price list that has the type of every job of the row
  std::string elsewhere_list;  // its name, date and currency; empty: there is none
};

// "job", "day" (of the create, UTC) or "tag:KEY". kInvalidArgument names what would be right.
Result<std::string> check_grouping(std::string_view by);
// `costs`: elements of ListTrainingJobCosts. Rows of one key stay apart where the currency differs.
std::vector<CostRow> group_costs(const boost::json::array& costs, std::string_view by);
// "2026-11-30", "2026-11-30T08:00:00Z", or "7d", "24h", "30m" before `now`.
Result<Time> parse_since(std::string_view text, Time now);

}  // namespace atelier::cli
