#include "compute/price_lists.h"

#include <fmt/format.h>

#include <cmath>

#include "compute/instance_types.h"

// Without exceptions a failed parse comes back as a value; header-only keeps a shared library out.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace atelier::compute {
namespace {

constexpr std::size_t kMaxLists = 20;
constexpr std::size_t kMaxPrices = 2000;

Error wrong(std::string_view where, std::string_view what) {
  return Error{Code::kInvalidArgument, fmt::format("price lists: {}: {}", where, what)};
}

Result<void> parse_prices(const toml::table& prices, PriceList& list) {
  if (prices.size() > kMaxPrices) {
    return wrong(list.name, fmt::format("{} prices are more than {}", prices.size(), kMaxPrices));
  }
  for (const auto& [type, price] : prices) {
    const std::optional<double> value = price.value<double>();
    if (!value || !std::isfinite(*value) || *value < 0) {
      return wrong(list.name,
                   fmt::format("the price of '{}' must be a number of at least 0", type.str()));
    }
    list.price_per_hour.emplace(type.str(), *value);
  }
  return {};
}

Result<PriceList> parse_list(const toml::node& node, std::size_t number) {
  const toml::table* table = node.as_table();
  const std::string where = fmt::format("list {}", number);
  if (table == nullptr) return wrong(where, "must be a table");
  PriceList list;
  for (const auto& [key, value] : *table) {
    if (key.str() == "prices" && value.is_table()) continue;
    std::string* text = key.str() == "name"       ? &list.name
                        : key.str() == "currency" ? &list.currency
                        : key.str() == "date"     ? &list.date
                                                  : nullptr;
    if (text == nullptr || !value.is_string()) {
      return wrong(where, fmt::format("'{}' is not known, or of the wrong type; known are the "
                                      "strings name, currency and date, and the table prices",
                                      key.str()));
    }
    *text = value.value_or(std::string{});
  }
  if (list.name.empty() || list.currency.empty() || list.date.empty()) {
    return wrong(where, "needs name, currency and date: a price without a date says nothing");
  }
  const toml::table* prices = (*table)["prices"].as_table();
  if (prices == nullptr) return wrong(where, "lacks prices");
  TRY(parse_prices(*prices, list));
  return list;
}

}  // namespace

Result<std::vector<PriceList>> parse_price_lists(std::string_view text) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::source_position at = parsed.error().source().begin;
    return wrong(fmt::format("line {}, column {}", at.line, at.column),
                 parsed.error().description());
  }
  std::vector<PriceList> lists;
  for (const auto& [key, value] : parsed.table()) {
    const toml::array* found = value.as_array();
    if (key.str() != "list" || found == nullptr || found->size() > kMaxLists) {
      return wrong(key.str(), fmt::format("only [[list]] is known, at most {} times", kMaxLists));
    }
    for (const toml::node& node : *found) {
      lists.push_back(TRY(parse_list(node, lists.size() + 1)));
    }
  }
  return lists;
}

const std::vector<PriceList>& builtin_price_lists() {
  static const std::vector<PriceList> lists = [] {
    const InstanceTable& table = builtin_instance_table();
    PriceList list{"Amazon SageMaker training on demand, us-west-2, rounded, not looked up",
                   table.currency,
                   table.price_date,
                   {}};
    for (const InstanceType& type : table.types) {
      list.price_per_hour.emplace(type.name, type.price_per_hour);
    }
    return std::vector<PriceList>{std::move(list)};
  }();
  return lists;
}

}  // namespace atelier::compute
