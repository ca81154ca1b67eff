// What the same instance types cost elsewhere: lists that the user keeps, each with its date. Read
// from a TOML file:
//
//   [[list]]
//   name = "A cloud, on demand"
//   currency = "USD"
//   date = "2026-11-30"
//   prices = { "ml.m5.xlarge" = 0.23 }     # of one instance for an hour
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::compute {

struct PriceList {
  std::string name;
  std::string currency;
  std::string date;                                           // when the prices were looked up
  std::map<std::string, double, std::less<>> price_per_hour;  // by instance type
};

Result<std::vector<PriceList>> parse_price_lists(std::string_view toml);
// The prices of the built-in instance table.
const std::vector<PriceList>& builtin_price_lists();

}  // namespace atelier::compute
