#include "agent/python_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <unordered_map>

namespace atelier::agent {
namespace {

struct CodeRange {
  std::uint32_t first, last;
};
struct CaseRun {
  std::uint32_t first, last, step;
  std::int32_t distance;
};
struct CaseString {
  std::uint32_t code;
  const char* upper;
};
#include "agent/unicode_tables.inc"

constexpr int kMaxDepth = 900;
constexpr std::size_t kMaxIntegerDigits = 4300;  // sys.int_info.default_max_str_digits

void append_code(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// The character at `position`, which moves behind it. Bytes that are no UTF-8 count as one
// character each, so that this ends on any input.
std::uint32_t next_code(std::string_view text, std::size_t& position) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const std::uint32_t lead = byte(position);
  const std::size_t extra = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  if (extra == 0 || position + extra >= text.size()) {
    ++position;
    return lead;
  }
  std::uint32_t code = lead & (0x3FU >> extra);
  for (std::size_t i = 1; i <= extra; ++i) code = code << 6 | (byte(position + i) & 0x3F);
  position += extra + 1;
  return code;
}

bool is_printable(std::uint32_t code) {
  if (code < 0x80) return code >= 0x20 && code != 0x7F;
  const auto* range = std::ranges::lower_bound(kUnprintable, code, {}, &CodeRange::last);
  return range == std::end(kUnprintable) || code < range->first;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<PythonValue> document() {
    skip_blanks();
    PythonValue value = TRY(this->value(0));
    skip_blanks();
    if (at_ != text_.size()) return broken("extra data");
    return value;
  }

 private:
  Result<PythonValue> value(int depth) {
    if (depth > kMaxDepth) return broken(fmt::format("more than {} levels", kMaxDepth));
    if (at_ == text_.size()) return broken("a value is missing");
    switch (text_[at_]) {
      case '"':
        return PythonValue(TRY(string()));
      case '{':
        return dict(depth);
      case '[':
        return list(depth);
      default:
        break;
    }
    if (take("null")) return PythonValue();
    if (take("true")) return PythonValue(true);
    if (take("false")) return PythonValue(false);
    if (take("NaN")) return PythonValue(std::numeric_limits<double>::quiet_NaN());
    if (take("Infinity")) return PythonValue(std::numeric_limits<double>::infinity());
    if (take("-Infinity")) return PythonValue(-std::numeric_limits<double>::infinity());
    return number();
  }

  Result<PythonValue> list(int depth) {
    ++at_;
    PythonList items;
    skip_blanks();
    if (take("]")) return PythonValue(std::move(items));
    while (true) {
      skip_blanks();
      items.push_back(TRY(value(depth + 1)));
      skip_blanks();
      if (take("]")) return PythonValue(std::move(items));
      if (!take(",")) return broken("',' or ']' is missing");
    }
  }

  Result<PythonValue> dict(int depth) {
    ++at_;
    PythonDict members;
    std::unordered_map<std::string, std::size_t> places;
    skip_blanks();
    if (take("}")) return PythonValue(std::move(members));
    while (true) {
      skip_blanks();
      if (at_ == text_.size() || text_[at_] != '"') return broken("a member's name is missing");
      std::string key = TRY(string());
      skip_blanks();
      if (!take(":")) return broken("':' is missing");
      skip_blanks();
      PythonValue member = TRY(value(depth + 1));
      const auto [place, is_new] = places.emplace(key, members.items.size());
      if (is_new) {
        members.items.emplace_back(std::move(key), std::move(member));
      } else {
        members.items[place->second].second = std::move(member);
      }
      skip_blanks();
      if (take("}")) return PythonValue(std::move(members));
      if (!take(",")) return broken("',' or '}' is missing");
    }
  }

  Result<PythonValue> number() {
    const std::size_t start = at_;
    take("-");
    const std::size_t digits = at_;
    if (!take("0")) skip_digits();
    if (at_ == digits) return broken("no JSON value");
    const std::size_t integer_end = at_;
    if (take(".") && skip_digits() == 0) at_ = integer_end;
    const std::size_t fraction_end = at_;
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (!take("+")) take("-");
      if (skip_digits() == 0) at_ = fraction_end;
    }
    const std::string literal(text_.substr(start, at_ - start));
    if (at_ == integer_end) {
      if (at_ - digits > kMaxIntegerDigits) return broken("an integer of more than 4300 digits");
      return PythonValue(PythonInt{literal == "-0" ? "0" : literal});
    }
    // strtod gives infinity and zero beyond the range, as float() does; std::from_chars would
    // refuse.
    return PythonValue(std::strtod(literal.c_str(), nullptr));
  }

  Result<std::string> string() {
    ++at_;
    std::string out;
    while (true) {
      if (at_ == text_.size()) return broken("a string does not end");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) return broken("a control character in a string");
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ == text_.size()) return broken("a string does not end");
      const char escape = text_[at_++];
      if (escape == 'u') {
        append_code(out, TRY(escaped_code()));
        continue;
      }
      constexpr std::string_view kNames = "\"\\/bfnrt";
      constexpr std::string_view kCharacters = "\"\\/\b\f\n\r\t";
      const std::size_t which = kNames.find(escape);
      if (which == std::string_view::npos) return broken("an unknown escape in a string");
      out += kCharacters[which];
    }
  }

  Result<std::uint32_t> escaped_code() {
    const std::uint32_t code = TRY(four_digits());
    const std::size_t after = at_;
    if (code >= 0xD800 && code < 0xDC00 && take("\\u")) {
      const Result<std::uint32_t> low = four_digits();
      if (low && *low >= 0xDC00 && *low < 0xE000) {
        return 0x10000 + ((code - 0xD800) << 10 | (*low - 0xDC00));
      }
      at_ = after;
    }
    return code;
  }

  Result<std::uint32_t> four_digits() {
    if (text_.size() - at_ < 4) return broken("a \\u escape needs four digits");
    std::uint32_t code = 0;
    const char* begin = text_.data() + at_;
    const auto parsed = std::from_chars(begin, begin + 4, code, 16);
    if (parsed.ec != std::errc{} || parsed.ptr != begin + 4) {
      return broken("a \\u escape needs four digits");
    }
    at_ += 4;
    return code;
  }

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(" \t\n\r", at_), text_.size()); }

  std::size_t skip_digits() {
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - start;
  }

  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  [[nodiscard]] Error broken(std::string_view why) const {
    return Error{Code::kInvalidArgument, fmt::format("JSON at byte {}: {}", at_, why)};
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// float.__repr__: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(text);
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string out(buffer, static_cast<std::size_t>(fixed.ptr - buffer));
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t code = next_code(text, at);
    if (code == static_cast<std::uint32_t>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\t') {
      out += "\\t";
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (is_printable(code)) {
      append_code(out, code);
    } else if (code < 0x100) {
      out += fmt::format("\\x{:02x}", code);
    } else if (code < 0x10000) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += fmt::format("\\U{:08x}", code);
    }
  }
  return out + quote;
}

std::string string_json(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t code = next_code(text, at);
    constexpr std::string_view kCharacters = "\"\\\b\f\n\r\t";
    constexpr std::string_view kNames = "\"\\bfnrt";
    const std::size_t which =
        code < 0x80 ? kCharacters.find(static_cast<char>(code)) : std::string_view::npos;
    if (which != std::string_view::npos) {
      out += '\\';
      out += kNames[which];
    } else if (code >= 0x20 && code < 0x7F) {
      out += static_cast<char>(code);
    } else if (code < 0x10000) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      const std::uint32_t offset = code - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 | offset >> 10, 0xDC00 | (offset & 0x3FF));
    }
  }
  return out + '"';
}

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // clang 14 does not find it by itself

}  // namespace

PythonValue::PythonValue(int value) : data(PythonInt{std::to_string(value)}) {}

const PythonValue* PythonDict::find(std::string_view key) const {
  const auto item = std::ranges::find(
      items, key, [](const auto& entry) -> std::string_view { return entry.first; });
  return item == items.end() ? nullptr : &item->second;
}

void PythonDict::set(std::string key, PythonValue value) {
  for (auto& [name, old] : items) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  items.emplace_back(std::move(key), std::move(value));
}

bool PythonValue::truthy() const {
  return std::visit(
      Overloaded{[](const PythonNone&) { return false; }, [](const bool& value) { return value; },
                 [](const PythonInt& value) { return value.digits != "0"; },
                 [](const double& value) { return value != 0; },
                 [](const std::string& value) { return !value.empty(); },
                 [](const PythonList& value) { return !value.empty(); },
                 [](const PythonDict& value) { return !value.items.empty(); }},
      data);
}

Result<PythonValue> parse_python_json(std::string_view text) { return Parser(text).document(); }

std::string python_repr(const PythonValue& value) {
  return std::visit(
      Overloaded{[](const PythonNone&) -> std::string { return "None"; },
                 [](const bool& flag) -> std::string { return flag ? "True" : "False"; },
                 [](const PythonInt& number) { return number.digits; },
                 [](const double& number) { return float_repr(number); },
                 [](const std::string& text) { return string_repr(text); },
                 [](const PythonList& list) {
                   std::string out = "[";
                   for (const PythonValue& item : list) {
                     if (out.size() > 1) out += ", ";
                     out += python_repr(item);
                   }
                   return out + "]";
                 },
                 [](const PythonDict& dict) {
                   std::string out = "{";
                   for (const auto& [name, member] : dict.items) {
                     if (out.size() > 1) out += ", ";
                     out += string_repr(name) + ": " + python_repr(member);
                   }
                   return out + "}";
                 }},
      value.data);
}

std::string python_str(const PythonValue& value) {
  return value.string() ? *value.string() : python_repr(value);
}

std::string python_dumps(const PythonValue& value) {
  return std::visit(
      Overloaded{[](const PythonNone&) -> std::string { return "null"; },
                 [](const bool& flag) -> std::string { return flag ? "true" : "false"; },
                 [](const PythonInt& number) { return number.digits; },
                 [](const double& number) -> std::string {
                   if (std::isnan(number)) return "NaN";
                   if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
                   return float_repr(number);
                 },
                 [](const std::string& text) { return string_json(text); },
                 [](const PythonList& list) {
                   std::string out = "[";
                   for (const PythonValue& item : list) {
                     if (out.size() > 1) out += ",";
                     out += python_dumps(item);
                   }
                   return out + "]";
                 },
                 [](const PythonDict& dict) {
                   std::vector<const std::pair<std::string, PythonValue>*> sorted;
                   for (const auto& item : dict.items) sorted.push_back(&item);
                   // UTF-8 sorts as the characters do.
                   std::ranges::sort(sorted, {}, [](const auto* item) -> std::string_view {
                     return item->first;
                   });
                   std::string out = "{";
                   for (const auto* item : sorted) {
                     if (out.size() > 1) out += ",";
                     out += string_json(item->first) + ":" + python_dumps(item->second);
                   }
                   return out + "}";
                 }},
      value.data);
}

std::string python_upper(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t code = next_code(text, at);
    if (code < 0x80) {
      const bool lower = code >= 'a' && code <= 'z';
      out += static_cast<char>(lower ? code - 0x20 : code);
      continue;
    }
    const auto* special = std::ranges::lower_bound(kUpperStrings, code, {}, &CaseString::code);
    if (special != std::end(kUpperStrings) && special->code == code) {
      out += special->upper;
      continue;
    }
    const auto* run = std::ranges::lower_bound(kUpperRuns, code, {}, &CaseRun::last);
    const bool inside =
        run != std::end(kUpperRuns) && code >= run->first && (code - run->first) % run->step == 0;
    append_code(out,
                inside ? static_cast<std::uint32_t>(static_cast<std::int32_t>(code) + run->distance)
                       : code);
  }
  return out;
}

std::size_t python_length(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) next_code(text, at);
  return count;
}

std::string shell_quote(std::string_view text) {
  constexpr std::string_view kSafe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (text.empty()) return "''";
  if (text.find_first_not_of(kSafe) == std::string_view::npos) return std::string(text);
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\"'\"'";
    } else {
      out += c;
    }
  }
  return out + "'";
}

}  // namespace atelier::agent
