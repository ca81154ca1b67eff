#include "api/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "api/pattern.h"
#include "api/text.h"

namespace atelier::api {
namespace {

constexpr std::size_t kErrorsSpelledOut = 10;
constexpr std::size_t kValueCharacters = 200;
constexpr double kLastTimestamp = 253402300799;  // the end of the year 9999

// Where a value is, from the root down; rendered only when something is wrong with it.
struct Place {
  const Place* parent = nullptr;
  std::string_view name;  // a member or a map's key
  std::size_t index = 0;  // from 1, in a list
  bool in_map = false;

  // "inputDataConfig.1.member.channelName", as AWS writes paths.
  void render(std::string& out) const {
    if (parent == nullptr) return;
    parent->render(out);
    if (!out.empty()) out += '.';
    if (index != 0) {
      out += fmt::format("{}.member", index);
    } else if (in_map) {
      out += cut_text(name, 64) + ".member";
    } else {
      const std::size_t start = out.size();
      out += name;
      if (out[start] >= 'A' && out[start] <= 'Z') out[start] = static_cast<char>(out[start] | 0x20);
    }
  }
  [[nodiscard]] std::string text() const {
    std::string out;
    render(out);
    return out;
  }
};

std::string value_text(const json::value* value) {
  if (value == nullptr) return "null";
  std::string text =
      value->is_string() ? std::string(value->get_string()) : json::serialize(*value);
  std::string cut = cut_text(text, kValueCharacters);
  return cut.size() < text.size() ? cut + "..." : cut;
}

// The whole number that `value` is, when it is one within [low, high].
std::optional<std::int64_t> whole_number(const json::value& value, std::int64_t low,
                                         std::int64_t high) {
  std::int64_t number = 0;
  if (value.is_int64()) {
    number = value.get_int64();
  } else if (value.is_double() && std::trunc(value.get_double()) == value.get_double() &&
             std::abs(value.get_double()) < 0x1p53) {
    number = static_cast<std::int64_t>(value.get_double());
  } else {
    return std::nullopt;  // uint64 holds only what int64 cannot
  }
  return number >= low && number <= high ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> integer_of(const json::value& value, Kind kind) {
  using Int = std::numeric_limits<std::int32_t>;
  using Long = std::numeric_limits<std::int64_t>;
  return kind == Kind::kInteger ? whole_number(value, Int::min(), Int::max())
                                : whole_number(value, Long::min(), Long::max());
}

bool has_type(const json::value& value, Kind kind) {
  switch (kind) {
    case Kind::kStructure:
    case Kind::kMap:
      return value.is_object();
    case Kind::kList:
      return value.is_array();
    case Kind::kString:
    case Kind::kBlob:
      return value.is_string();
    case Kind::kBoolean:
      return value.is_bool();
    case Kind::kInteger:
    case Kind::kLong:
      return integer_of(value, kind).has_value();
    case Kind::kFloat:
      return value.is_number() && std::isfinite(value.to_number<double>());
    case Kind::kTimestamp:
      return value.is_number() && std::abs(value.to_number<double>()) <= kLastTimestamp;
  }
  return false;
}

std::string_view wanted_type(Kind kind) {
  switch (kind) {
    case Kind::kStructure:
      return "structure";
    case Kind::kMap:
      return "map";
    case Kind::kList:
      return "list";
    case Kind::kString:
      return "String";
    case Kind::kBlob:
      return "blob";
    case Kind::kBoolean:
      return "Boolean";
    case Kind::kInteger:
      return "Integer";
    case Kind::kLong:
      return "Long";
    case Kind::kFloat:
      return "Double";
    case Kind::kTimestamp:
      return "timestamp (seconds since 1970)";
  }
  return "value";
}

std::string_view found_type(const json::value& value) {
  switch (value.kind()) {
    case json::kind::object:
      return "a structure";
    case json::kind::array:
      return "a list";
    case json::kind::string:
      return "STRING_VALUE";
    case json::kind::bool_:
      return value.get_bool() ? "TRUE_VALUE" : "FALSE_VALUE";
    case json::kind::null:
      return "null";
    default:
      return "NUMBER_VALUE";
  }
}

class Validator {
 public:
  void check(const json::value& value, const Shape& shape, const Place& place) {
    if (!type_error_.empty()) return;
    if (!has_type(value, shape.kind)) {
      type_error_ = fmt::format("'{}': {} '{}' can not be converted to a {}",
                                place.parent == nullptr ? "request" : place.text(),
                                found_type(value), value_text(&value), wanted_type(shape.kind));
      return;
    }
    switch (shape.kind) {
      case Kind::kStructure:
        return check_structure(value.get_object(), shape, place);
      case Kind::kList:
        return check_list(value, shape, place);
      case Kind::kMap:
        return check_map(value, shape, place);
      case Kind::kString:
        return check_string(value, shape, place, /*is_key=*/false);
      case Kind::kInteger:
      case Kind::kLong:
        return check_value(value, shape, place);
      default:
        return;
    }
  }

  [[nodiscard]] std::optional<ApiError> error() && {
    if (!type_error_.empty()) {
      return ApiError{400, "SerializationException", std::move(type_error_)};
    }
    if (count_ == 0) return std::nullopt;
    std::string message = fmt::format("{} validation error{} detected: {}", count_,
                                      count_ == 1 ? "" : "s", fmt::join(spelled_out_, "; "));
    if (count_ > spelled_out_.size()) {
      message += fmt::format("; and {} more", count_ - spelled_out_.size());
    }
    return validation_error(std::move(message));
  }

 private:
  void fail(const json::value* value, const Place& place, std::string_view constraint,
            bool is_key = false) {
    if (++count_ > kErrorsSpelledOut) return;
    spelled_out_.push_back(fmt::format(
        "Value '{}' at '{}' failed to satisfy constraint: {}{}{}", value_text(value), place.text(),
        is_key ? "Map keys must satisfy constraint: [" : "", constraint, is_key ? "]" : ""));
  }

  void check_structure(const json::object& object, const Shape& shape, const Place& place) {
    for (const Member& member : shape.members) {
      const json::value* value = object.if_contains(member.name);
      const Place inside{&place, member.name};
      if (value != nullptr && !value->is_null()) {
        check(*value, *member.shape, inside);
      } else if (member.required) {
        fail(nullptr, inside, "Member must not be null");
      }
    }
  }

  void check_list(const json::value& list, const Shape& shape, const Place& place) {
    check_length(list.get_array().size(), list, shape, place, false);
    std::size_t index = 0;
    for (const json::value& element : list.get_array()) {
      check_element(element, *shape.element, Place{&place, {}, ++index});
    }
  }

  void check_map(const json::value& map, const Shape& shape, const Place& place) {
    check_length(map.get_object().size(), map, shape, place, false);
    for (const auto& [key, value] : map.get_object()) {
      check_string(json::value(key), *shape.key, place, /*is_key=*/true);
      check_element(value, *shape.element, Place{&place, key, 0, true});
    }
  }

  void check_element(const json::value& element, const Shape& shape, const Place& place) {
    if (element.is_null()) {
      fail(nullptr, place, "Member must not be null");
    } else {
      check(element, shape, place);
    }
  }

  void check_length(std::size_t length, const json::value& value, const Shape& shape,
                    const Place& place, bool is_key) {
    const auto signed_length = static_cast<std::int64_t>(length);
    if (shape.max && signed_length > *shape.max) {
      fail(&value, place,
           fmt::format("Member must have length less than or equal to {}", *shape.max), is_key);
    }
    if (shape.min && signed_length < *shape.min) {
      fail(&value, place,
           fmt::format("Member must have length greater than or equal to {}", *shape.min), is_key);
    }
  }

  void check_string(const json::value& value, const Shape& shape, const Place& place, bool is_key) {
    const std::string_view text = value.get_string();
    check_length(count_characters(text), value, shape, place, is_key);
    if (shape.pattern >= 0 && !matches(shape.pattern, text)) {
      fail(&value, place,
           fmt::format("Member must satisfy regular expression pattern: {}",
                       patterns()[static_cast<std::size_t>(shape.pattern)].model),
           is_key);
    }
    if (!shape.values.empty() && std::ranges::find(shape.values, text) == shape.values.end()) {
      fail(&value, place,
           fmt::format("Member must satisfy enum value set: [{}]", fmt::join(shape.values, ", ")),
           is_key);
    }
  }

  void check_value(const json::value& value, const Shape& shape, const Place& place) {
    const std::int64_t number = *integer_of(value, shape.kind);
    if (shape.max && number > *shape.max) {
      fail(&value, place,
           fmt::format("Member must have value less than or equal to {}", *shape.max));
    }
    if (shape.min && number < *shape.min) {
      fail(&value, place,
           fmt::format("Member must have value greater than or equal to {}", *shape.min));
    }
  }

  std::string type_error_;
  std::size_t count_ = 0;
  std::vector<std::string> spelled_out_;
};

json::value project_list(const json::array& list, const Shape& shape,
                         const json::storage_ptr& storage) {
  json::array out(storage);
  out.reserve(list.size());
  for (const json::value& element : list) {
    if (has_type(element, shape.element->kind)) {
      out.push_back(project(element, *shape.element, storage));
    }
  }
  return out;
}

json::value project_map(const json::object& map, const Shape& shape,
                        const json::storage_ptr& storage) {
  json::object out(storage);
  out.reserve(map.size());
  for (const auto& [key, element] : map) {
    if (has_type(element, shape.element->kind)) {
      out.emplace(key, project(element, *shape.element, storage));
    }
  }
  return out;
}

json::value project_structure(const json::object& object, const Shape& shape,
                              const json::storage_ptr& storage) {
  json::object out(storage);
  out.reserve(std::min(object.size(), shape.members.size()));
  for (const Member& member : shape.members) {
    const json::value* inside = object.if_contains(member.name);
    if (inside != nullptr && has_type(*inside, member.shape->kind)) {
      out.emplace(member.name, project(*inside, *member.shape, storage));
    }
  }
  return out;
}

}  // namespace

std::optional<ApiError> validate(const json::value& input, const Shape& shape) {
  Validator validator;
  validator.check(input, shape, Place{});
  return std::move(validator).error();
}

json::value project(const json::value& value, const Shape& shape,
                    const json::storage_ptr& storage) {
  if (!has_type(value, shape.kind)) return json::value(storage);
  switch (shape.kind) {
    case Kind::kList:
      return project_list(value.get_array(), shape, storage);
    case Kind::kMap:
      return project_map(value.get_object(), shape, storage);
    case Kind::kStructure:
      return project_structure(value.get_object(), shape, storage);
    case Kind::kInteger:
    case Kind::kLong:
      return json::value(*integer_of(value, shape.kind), storage);
    default:
      return json::value(value, storage);
  }
}

}  // namespace atelier::api
