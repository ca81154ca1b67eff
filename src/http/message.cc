#include "http/message.h"

#include <algorithm>
#include <string>

namespace atelier::http {
namespace {

constexpr std::size_t kMaxQueryPairs = 1000;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

class Answer final : public Exchange {
 public:
  explicit Answer(Response response) : response_(std::move(response)) {}
  bool wants_body() const override { return false; }
  bool on_body(std::span<const std::byte>) override { return false; }
  Response finish() override { return std::move(response_); }

 private:
  Response response_;
};

}  // namespace

bool equal_without_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return x == y || lower(x) == lower(y);
         });
}

void Headers::set(std::string_view name, std::string value) {
  std::erase_if(fields_, [&](const Field& field) { return equal_without_case(field.first, name); });
  add(std::string{name}, std::move(value));
}

std::optional<std::string_view> Headers::find(std::string_view name) const {
  for (const Field& field : fields_) {
    if (equal_without_case(field.first, name)) return field.second;
  }
  return std::nullopt;
}

std::optional<std::string> Headers::joined(std::string_view name) const {
  std::optional<std::string> all;
  for (const Field& field : fields_) {
    if (!equal_without_case(field.first, name)) continue;
    if (all) {
      *all += ',';
      *all += field.second;
    } else {
      all = field.second;
    }
  }
  return all;
}

std::string_view RequestHead::path() const {
  return std::string_view{target}.substr(0, target.find('?'));
}

std::string_view RequestHead::query() const {
  const std::size_t mark = target.find('?');
  if (mark == std::string::npos) return {};
  return std::string_view{target}.substr(mark + 1);
}

std::unique_ptr<Exchange> answer(Response response) {
  return std::make_unique<Answer>(std::move(response));
}

Result<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return Error{Code::kInvalidArgument,
                     "'" + std::string{text.substr(i, 3)} +
                         "' is not a percent-escape; write it like %2F (a plain % is %25)"};
      }
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return decoded;
}

std::string percent_encode(std::string_view text, bool keep_slash) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (is_unreserved(c) || (c == '/' && keep_slash)) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += '%';
      encoded += kDigits[byte >> 4];
      encoded += kDigits[byte & 15];
    }
  }
  return encoded;
}

Result<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query,
                                                                     bool plus_is_space) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(part.size() + 1, query.size()));
    if (part.empty()) continue;
    if (pairs.size() == kMaxQueryPairs) {
      return Error{Code::kInvalidArgument,
                   "a query of more than " + std::to_string(kMaxQueryPairs) + " parameters"};
    }
    const std::size_t equals = std::min(part.find('='), part.size());
    std::string name = TRY(percent_decode(part.substr(0, equals), plus_is_space));
    std::string value =
        TRY(percent_decode(part.substr(std::min(equals + 1, part.size())), plus_is_space));
    pairs.emplace_back(std::move(name), std::move(value));
  }
  return pairs;
}

}  // namespace atelier::http
