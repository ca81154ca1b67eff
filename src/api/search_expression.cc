#include "api/search_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/time.h"

namespace atelier::api {
namespace {

using Condition = std::function<bool(const json::value&)>;

// Maps whose keys are the user's own: everything after the first dot is the key.
constexpr std::string_view kKeyed[] = {"HyperParameters", "Environment"};

std::pair<std::string_view, std::string_view> split(std::string_view property) {
  const std::size_t dot = property.find('.');
  if (dot == std::string_view::npos) return {property, {}};
  return {property.substr(0, dot), property.substr(dot + 1)};
}

// The values of `member` in the elements of a list whose `key` member is `name`.
void add_keyed(const json::value& document, std::string_view list, std::string_view key,
               std::string_view name, std::string_view member, std::vector<json::value>& found) {
  const json::array* elements = find_array(document, list);
  if (elements == nullptr) return;
  for (const json::value& element : *elements) {
    if (find_string(element, key) != name) continue;
    if (const json::value* value = find_member(element, member)) found.push_back(*value);
  }
}

void add_at(const json::value& value, std::string_view path, std::vector<json::value>& found) {
  if (const json::array* elements = value.if_array()) {
    for (const json::value& element : *elements) add_at(element, path, found);
    return;
  }
  if (path.empty()) {
    found.push_back(value);
    return;
  }
  const auto [head, rest] = split(path);
  if (const json::value* inside = find_member(value, head)) add_at(*inside, rest, found);
}

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// What a filter's value is as a number: itself, or a time in seconds.
std::optional<double> number_or_time(const std::string& text) {
  if (const auto number = number_of(text)) return number;
  std::string with_zone = text;
  if (with_zone.size() == std::string_view("2026-11-30T07:00:00").size()) with_zone += 'Z';
  if (with_zone.size() == std::string_view("2026-11-30").size()) with_zone += "T00:00:00Z";
  const Result<Time> time = parse_iso8601(with_zone);
  return time ? std::optional(to_epoch_seconds(*time)) : std::nullopt;
}

std::string text_of(const json::value& value) {
  if (value.is_string()) return std::string(value.get_string());
  return json::serialize(value);
}

std::optional<double> numeric(const json::value& value) {
  if (value.is_number()) return value.to_number<double>();
  return value.is_string() ? number_of(value.get_string()) : std::nullopt;
}

// A filter's value as what it may be compared with.
struct Wanted {
  std::string text;
  std::optional<double> number;
};

bool equals(const json::value& value, const Wanted& wanted) {
  if (value.is_string() && value.get_string() == wanted.text) return true;
  if (value.is_bool()) return wanted.text == (value.get_bool() ? "true" : "false");
  const auto number = numeric(value);
  return number && wanted.number && *number == *wanted.number;
}

enum class Operator {
  kEquals,
  kNotEquals,
  kGreater,
  kGreaterOrEqual,
  kLess,
  kLessOrEqual,
  kContains,
  kExists,
  kNotExists,
  kIn
};

constexpr std::pair<std::string_view, Operator> kOperators[] = {
    {"Equals", Operator::kEquals},       {"NotEquals", Operator::kNotEquals},
    {"GreaterThan", Operator::kGreater}, {"GreaterThanOrEqualTo", Operator::kGreaterOrEqual},
    {"LessThan", Operator::kLess},       {"LessThanOrEqualTo", Operator::kLessOrEqual},
    {"Contains", Operator::kContains},   {"Exists", Operator::kExists},
    {"NotExists", Operator::kNotExists}, {"In", Operator::kIn},
};

bool compares(Operator operation, double value, double wanted) {
  switch (operation) {
    case Operator::kGreater:
      return value > wanted;
    case Operator::kGreaterOrEqual:
      return value >= wanted;
    case Operator::kLess:
      return value < wanted;
    default:
      return value <= wanted;
  }
}

// A filter on one property.
struct Filter {
  std::string property;
  Operator operation = Operator::kEquals;
  std::vector<Wanted> wanted;  // one, but for In

  [[nodiscard]] bool holds(const json::value& value) const {
    switch (operation) {
      case Operator::kEquals:
      case Operator::kIn:
        return std::ranges::any_of(wanted, [&](const Wanted& each) { return equals(value, each); });
      case Operator::kContains:
        return text_of(value).find(wanted.front().text) != std::string::npos;
      case Operator::kExists:
        return true;
      default: {
        const auto number = numeric(value);
        return number && wanted.front().number &&
               compares(operation, *number, *wanted.front().number);
      }
    }
  }

  // Of a list any element may hold; the two negations say that none does.
  bool operator()(const json::value& document) const {
    const std::vector<json::value> values = property_values(document, property);
    if (operation == Operator::kNotExists) return values.empty();
    if (operation == Operator::kNotEquals) {
      return std::ranges::none_of(
          values, [&](const json::value& value) { return equals(value, wanted.front()); });
    }
    return std::ranges::any_of(values, [&](const json::value& value) { return holds(value); });
  }
};

std::vector<Wanted> wanted_values(Operator operation, const std::string& text) {
  std::vector<Wanted> wanted;
  std::string_view rest = text;
  while (operation == Operator::kIn && rest.find(',') != std::string_view::npos) {
    const std::string each(rest.substr(0, rest.find(',')));
    wanted.push_back({each, number_or_time(each)});
    rest.remove_prefix(each.size() + 1);
  }
  wanted.push_back({std::string(rest), number_or_time(std::string(rest))});
  return wanted;
}

Condition combined(bool any, std::vector<Condition> conditions) {
  return [any, conditions = std::move(conditions)](const json::value& document) {
    const auto holds = [&](const Condition& condition) { return condition(document); };
    return any ? std::ranges::any_of(conditions, holds) : std::ranges::all_of(conditions, holds);
  };
}

Error wrong(std::string message) { return Error{Code::kInvalidArgument, std::move(message)}; }

const Shape& inside_of(const Shape& shape) {
  return shape.kind == Kind::kList ? *shape.element : shape;
}

void add_names(const Shape& shape, const std::string& path, std::vector<std::string>& names) {
  const Shape& inner = inside_of(shape);
  if (inner.kind == Kind::kMap) return;  // its keys are the user's
  if (inner.kind != Kind::kStructure) {
    names.push_back(path);
    return;
  }
  for (const Member& member : inner.members) {
    const std::string prefix = path.empty() ? "" : path + ".";
    add_names(*member.shape, prefix + std::string(member.name), names);
  }
}

}  // namespace

std::vector<json::value> property_values(const json::value& document, std::string_view property) {
  std::vector<json::value> found;
  const auto [head, rest] = split(property);
  if (head == "Metrics") {
    add_keyed(document, "FinalMetricDataList", "MetricName", rest, "Value", found);
  } else if (head == "Tags" && rest != "Key" && rest != "Value") {
    add_keyed(document, "Tags", "Key", rest, "Value", found);
  } else if (std::ranges::find(kKeyed, head) != std::end(kKeyed)) {
    const json::value* map = find_member(document, head);
    const json::value* value = map != nullptr ? find_member(*map, rest) : nullptr;
    if (value != nullptr) found.push_back(*value);
  } else {
    add_at(document, property, found);
  }
  return found;
}

bool has_property(const Shape& shape, std::string_view property) {
  const auto [head, rest] = split(property);
  if (head == "Metrics" || head == "Tags") return !rest.empty();
  const Shape* at = &shape;
  while (true) {
    at = &inside_of(*at);
    if (at->kind == Kind::kMap) return !property.empty();
    if (property.empty()) return true;
    if (at->kind != Kind::kStructure) return false;
    const auto [name, remaining] = split(property);
    const Member* member = member_of(*at, name);
    if (member == nullptr) return false;
    at = member->shape;
    property = remaining;
  }
}

std::vector<std::string> property_names(const Shape& shape) {
  std::vector<std::string> names;
  add_names(shape, "", names);
  return names;
}

class ExpressionReader {
 public:
  explicit ExpressionReader(const Shape& resource) : resource_(resource) {}

  Result<SearchExpression> read(const json::value& request) {
    SearchExpression read;
    if (const json::value* expression = find_member(request, "SearchExpression")) {
      read.all_.push_back(TRY(expression_of(*expression)));
    }
    if (const json::array* visible = find_array(request, "VisibilityConditions")) {
      for (const json::value& condition : *visible) {
        const std::string key = find_string(condition, "Key").value_or("");
        if (!key.starts_with("Tags.")) {
          return wrong(
              fmt::format("VisibilityConditions: Key '{}' must be Tags. and a tag's key", key));
        }
        read.all_.push_back(Filter{key,
                                   Operator::kEquals,
                                   {{find_string(condition, "Value").value_or(""), std::nullopt}}});
      }
    }
    return read;
  }

 private:
  Result<Condition> expression_of(const json::value& expression) {
    std::vector<Condition> parts;
    if (const json::array* filters = find_array(expression, "Filters")) {
      for (const json::value& filter : *filters) parts.push_back(TRY(filter_of(filter, "")));
    }
    if (const json::array* nested = find_array(expression, "NestedFilters")) {
      for (const json::value& each : *nested) parts.push_back(TRY(nested_of(each)));
    }
    if (const json::array* inner = find_array(expression, "SubExpressions")) {
      for (const json::value& each : *inner) parts.push_back(TRY(expression_of(each)));
    }
    if (parts.empty()) {
      return wrong(
          "SearchExpression: give at least one of Filters, NestedFilters and SubExpressions");
    }
    return combined(find_string(expression, "Operator") == "Or", std::move(parts));
  }

  // `inside`: the list that the filter is about an element of, or "".
  Result<Filter> filter_of(const json::value& filter, const std::string& inside) {
    if (++conditions_ > SearchExpression::kMostConditions) {
      return wrong(
          fmt::format("SearchExpression: more than {} filters", SearchExpression::kMostConditions));
    }
    const std::string name = find_string(filter, "Name").value_or("");
    if (!has_property(resource_, name)) {
      return wrong(
          fmt::format("Unknown property name: '{}' is not a property of {}", name, resource_.name));
    }
    if (!inside.empty() && !name.starts_with(inside + ".")) {
      return wrong(
          fmt::format("NestedFilters: '{}' is not a property inside of '{}'", name, inside));
    }
    const std::string operation = find_string(filter, "Operator").value_or("Equals");
    const auto* known =
        std::ranges::find(kOperators, operation, &std::pair<std::string_view, Operator>::first);
    if (known == std::end(kOperators)) {
      return wrong(
          fmt::format("Operator '{}' of the filter on '{}' is not known", operation, name));
    }
    const auto value = find_string(filter, "Value");
    const bool takes_value =
        known->second != Operator::kExists && known->second != Operator::kNotExists;
    if (takes_value != value.has_value()) {
      return wrong(fmt::format("The filter on '{}': operator {} {} Value", name, operation,
                               takes_value ? "needs a" : "takes no"));
    }
    return Filter{inside.empty() ? name : name.substr(inside.size() + 1), known->second,
                  takes_value ? wanted_values(known->second, *value) : std::vector<Wanted>{}};
  }

  // All filters must hold of one and the same element of the list.
  Result<Condition> nested_of(const json::value& nested) {
    const std::string list = find_string(nested, "NestedPropertyName").value_or("");
    std::vector<Condition> filters;
    for (const json::value& filter : *find_array(nested, "Filters")) {
      filters.push_back(TRY(filter_of(filter, list)));
    }
    return Condition{
        [list, all = combined(false, std::move(filters))](const json::value& document) {
          const std::vector<json::value> elements = property_values(document, list);
          return std::ranges::any_of(elements, all);
        }};
  }

  const Shape& resource_;
  std::size_t conditions_ = 0;
};

Result<SearchExpression> SearchExpression::read(const json::value& request, const Shape& resource) {
  return ExpressionReader(resource).read(request);
}

bool SearchExpression::matches(const json::value& document) const {
  return std::ranges::all_of(all_, [&](const Condition& condition) { return condition(document); });
}

}  // namespace atelier::api
