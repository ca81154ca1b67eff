#include "api/query.h"

#include <fmt/format.h>

#include <charconv>

#include "api/text.h"
#include "base/time.h"
#include "http/message.h"

namespace atelier::api {
namespace {

// Text that XML can hold: markup escaped, and U+FFFD for control characters that XML forbids.
std::string xml_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r') {
          out += "\xEF\xBF\xBD";
        } else {
          out += c;
        }
    }
  }
  return out;
}

void write_value(std::string& out, std::string_view tag, const json::value& value,
                 const Shape& shape);

void write_inside(std::string& out, const json::value& value, const Shape& shape) {
  switch (shape.kind) {
    case Kind::kStructure:
      for (const Member& member : shape.members) {
        const json::value* inside = find_member(value, member.name);
        if (inside != nullptr) write_value(out, member.name, *inside, *member.shape);
      }
      return;
    case Kind::kList:
      for (const json::value& element : value.as_array()) {
        write_value(out, "member", element, *shape.element);
      }
      return;
    case Kind::kTimestamp:
      out += format_iso8601(from_epoch_seconds(value.to_number<double>()));
      return;
    default:
      out += value.is_string() ? xml_text(value.get_string()) : json::serialize(value);
  }
}

void write_value(std::string& out, std::string_view tag, const json::value& value,
                 const Shape& shape) {
  out += fmt::format("<{}>", tag);
  write_inside(out, value, shape);
  out += fmt::format("</{}>\n", tag);
}

}  // namespace

namespace {

template <typename Number>
json::value number_or_text(const json::string& text) {
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = failure == std::errc{} && end == text.data() + text.size();
  return whole ? json::value(number) : json::value(text);
}

json::value scalar(const json::string& text, const Shape& shape) {
  switch (shape.kind) {
    case Kind::kInteger:
    case Kind::kLong:
      return number_or_text<std::int64_t>(text);
    case Kind::kFloat:
      return number_or_text<double>(text);
    case Kind::kBoolean:
      if (text == "true" || text == "false") return text == "true";
      return text;
    case Kind::kTimestamp: {
      const Result<Time> time = parse_iso8601(text);
      return time ? json::value(to_epoch_seconds(*time)) : number_or_text<double>(text);
    }
    default:
      return text;
  }
}

// Null when no field begins with `path`.
json::value value_at(const json::object& fields, const std::string& path, const Shape& shape) {
  const std::string inside = path.empty() ? "" : path + ".";
  if (shape.kind == Kind::kStructure) {
    json::object object;
    for (const Member& member : shape.members) {
      json::value value = value_at(fields, inside + std::string(member.name), *member.shape);
      if (!value.is_null()) object.emplace(member.name, std::move(value));
    }
    return object.empty() && !path.empty() ? json::value() : json::value(std::move(object));
  }
  if (shape.kind == Kind::kList) {
    json::array list;
    while (true) {  // ends: each element takes a field of the form, of which there are 1,000
      json::value element =
          value_at(fields, fmt::format("{}member.{}", inside, list.size() + 1), *shape.element);
      if (element.is_null()) break;
      list.push_back(std::move(element));
    }
    return list.empty() ? json::value() : json::value(std::move(list));
  }
  const json::value* field = fields.if_contains(path);
  return field != nullptr && field->is_string() ? scalar(field->get_string(), shape)
                                                : json::value();
}

}  // namespace

json::value shape_query_input(const json::value& fields, const Shape& shape) {
  return value_at(fields.get_object(), "", shape);
}

Result<QueryCall> parse_query_call(std::string_view form) {
  const auto fields = TRY(http::parse_query(form, /*form=*/true));
  QueryCall call;
  json::object input;
  for (const auto& [name, value] : fields) {
    if (!is_valid_utf8(name) || !is_valid_utf8(value)) {
      return Error{Code::kInvalidArgument, "a field of the form is not UTF-8"};
    }
    if (name == "Action") {
      call.action = value;
    } else if (name != "Version" && !name.starts_with("X-Amz-")) {
      input.insert_or_assign(name, value);
    }
  }
  if (call.action.empty()) {
    return Error{Code::kInvalidArgument, "the request has no Action, such as Action=GetRole"};
  }
  call.input = std::move(input);
  return call;
}

std::string query_reply(const ServiceModel& service, const Operation& operation,
                        const json::object& output, std::string_view request_id) {
  std::string out =
      fmt::format("<{}Response xmlns=\"{}\">\n", operation.name, service.xml_namespace);
  if (operation.output != nullptr) {
    write_value(out, fmt::format("{}Result", operation.name), output, *operation.output);
  }
  out +=
      fmt::format("<ResponseMetadata><RequestId>{}</RequestId></ResponseMetadata>\n</{}Response>\n",
                  request_id, operation.name);
  return out;
}

std::string query_error(std::string_view xml_namespace, const ApiError& error,
                        std::string_view request_id) {
  return fmt::format(
      "<ErrorResponse xmlns=\"{}\">\n<Error><Type>{}</Type><Code>{}</Code><Message>{}</Message>"
      "</Error>\n<RequestId>{}</RequestId>\n</ErrorResponse>\n",
      xml_namespace, error.status < 500 ? "Sender" : "Receiver", xml_text(error.code),
      xml_text(error.message), request_id);
}

}  // namespace atelier::api
