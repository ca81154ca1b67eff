#include "base/json.h"

#include "base/file.h"

namespace atelier {
namespace {

void append_pretty(std::string& out, const json::value& value, std::size_t indent) {
  const std::string inner(indent + 2, ' ');
  if (const json::object* object = value.if_object(); object != nullptr && !object->empty()) {
    out += "{\n";
    bool first = true;
    for (const auto& member : *object) {
      if (!first) out += ",\n";
      first = false;
      out += inner + json::serialize(json::string(member.key())) + ": ";
      append_pretty(out, member.value(), indent + 2);
    }
    out += "\n" + std::string(indent, ' ') + "}";
  } else if (const json::array* array = value.if_array(); array != nullptr && !array->empty()) {
    out += "[\n";
    bool first = true;
    for (const json::value& item : *array) {
      if (!first) out += ",\n";
      first = false;
      out += inner;
      append_pretty(out, item, indent + 2);
    }
    out += "\n" + std::string(indent, ' ') + "]";
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

Result<json::value> parse_json(std::string_view text, std::size_t max_depth,
                               const json::storage_ptr& storage) {
  json::parse_options options;
  options.max_depth = max_depth;
  unsigned char room[2048];  // for what is begun and not ended; larger documents take the heap
  json::parser parser{json::storage_ptr{}, options, room};
  parser.reset(storage);
  json::error_code failure;
  const std::size_t used = parser.write_some(text.data(), text.size(), failure);
  if (failure) {
    return Error{Code::kInvalidArgument,
                 "not JSON at byte " + std::to_string(used) + ": " + failure.message()};
  }
  if (used != text.size()) {
    return Error{Code::kInvalidArgument,
                 "not JSON at byte " + std::to_string(used) + ": text after the value"};
  }
  return parser.release();
}

Result<json::value> read_json_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const std::string text = TRY(read_file(path, max_bytes));
  Result<json::value> value = parse_json(text);
  if (!value) return value.error().within(path.string());
  return value;
}

std::string pretty_json(const json::value& value) {
  std::string out;
  append_pretty(out, value, 0);
  return out;
}

const json::value* find_member(const json::value& value, std::string_view name) {
  const json::object* object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(name);
}

std::optional<std::string> find_string(const json::value& value, std::string_view name) {
  const json::value* member = find_member(value, name);
  if (member == nullptr || !member->is_string()) return std::nullopt;
  return std::string{std::string_view{member->get_string()}};
}

std::optional<std::int64_t> find_int(const json::value& value, std::string_view name) {
  const json::value* member = find_member(value, name);
  if (member == nullptr) return std::nullopt;
  json::error_code failure;
  const auto number = member->to_number<std::int64_t>(failure);
  if (failure) return std::nullopt;
  return number;
}

std::optional<double> find_number(const json::value& value, std::string_view name) {
  const json::value* member = find_member(value, name);
  if (member == nullptr || !member->is_number()) return std::nullopt;
  json::error_code failure;
  const auto number = member->to_number<double>(failure);
  if (failure) return std::nullopt;
  return number;
}

std::optional<bool> find_bool(const json::value& value, std::string_view name) {
  const json::value* member = find_member(value, name);
  if (member == nullptr || !member->is_bool()) return std::nullopt;
  return member->get_bool();
}

const json::object* find_object(const json::value& value, std::string_view name) {
  const json::value* member = find_member(value, name);
  return member == nullptr ? nullptr : member->if_object();
}

const json::array* find_array(const json::value& value, std::string_view name) {
  const json::value* member = find_member(value, name);
  return member == nullptr ? nullptr : member->if_array();
}

}  // namespace atelier
