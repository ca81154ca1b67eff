#include "objects/internal/bucket_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "http/message.h"
#include "objects/internal/s3_error.h"
#include "objects/internal/xml_reader.h"

namespace atelier::objects::internal {
namespace {

constexpr std::size_t kMaxCorsRules = 100;
constexpr std::size_t kMaxCorsBytes = 64 * 1024;  // as S3
constexpr std::size_t kMaxCorsEntries = 100;      // of a rule
constexpr std::size_t kMaxLifecycleRules = 1000;
constexpr std::array<std::string_view, 5> kMethods = {"GET", "PUT", "HEAD", "POST", "DELETE"};

// "https://*.example.org" against an origin, without case.
bool fits(std::string_view pattern, std::string_view text) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return http::equal_without_case(pattern, text);
  const std::string_view front = pattern.substr(0, star);
  const std::string_view back = pattern.substr(star + 1);
  return text.size() >= front.size() + back.size() &&
         http::equal_without_case(text.substr(0, front.size()), front) &&
         http::equal_without_case(text.substr(text.size() - back.size()), back);
}

bool fits_any(const std::vector<std::string>& patterns, std::string_view text) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return fits(pattern, text); });
}

Result<void> check_pattern(std::string_view element, const std::string& pattern) {
  if (std::count(pattern.begin(), pattern.end(), '*') <= 1) return {};
  return s3_error("InvalidRequest",
                  fmt::format("{} '{}' can not have more than one wildcard", element, pattern));
}

Result<CorsRule> parse_cors_rule(const pugi::xml_node& node) {
  CorsRule rule;
  std::size_t entries = 0;
  for (const pugi::xml_node& field : node.children()) {
    if (field.type() == pugi::node_element && ++entries > kMaxCorsEntries) {
      return malformed(fmt::format("a CORSRule has more than {} entries", kMaxCorsEntries));
    }
    const std::string text = text_of(field);
    if (is_named(field, "AllowedOrigin")) {
      TRY(check_pattern("AllowedOrigin", text));
      rule.origins.push_back(text);
    } else if (is_named(field, "AllowedMethod")) {
      if (std::find(kMethods.begin(), kMethods.end(), text) == kMethods.end()) {
        return s3_error("InvalidRequest",
                        fmt::format("AllowedMethod is '{}'; it must be GET, PUT, HEAD, POST or "
                                    "DELETE",
                                    text));
      }
      rule.methods.push_back(text);
    } else if (is_named(field, "AllowedHeader")) {
      TRY(check_pattern("AllowedHeader", text));
      rule.headers.push_back(text);
    } else if (is_named(field, "ExposeHeader")) {
      rule.exposed.push_back(text);
    } else if (is_named(field, "MaxAgeSeconds")) {
      if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != text.npos) {
        return malformed(fmt::format("MaxAgeSeconds is '{}', not a number", text));
      }
      rule.max_age = text;
    }
  }
  if (rule.origins.empty() || rule.methods.empty()) {
    return malformed("a CORSRule needs AllowedOrigin and AllowedMethod");
  }
  return rule;
}

}  // namespace

Result<std::vector<CorsRule>> parse_cors(std::string_view xml) {
  if (xml.size() > kMaxCorsBytes) {
    return s3_error("MaxMessageLengthExceeded",
                    fmt::format("the CORS configuration has {} bytes; {} are the most", xml.size(),
                                kMaxCorsBytes));
  }
  pugi::xml_document document;
  const pugi::xml_node root = TRY(load_document(document, xml, "CORSConfiguration"));
  std::vector<CorsRule> rules;
  for (const pugi::xml_node& child : root.children()) {
    if (!is_named(child, "CORSRule")) continue;
    if (rules.size() == kMaxCorsRules) return malformed("100 rules are the most");
    rules.push_back(TRY(parse_cors_rule(child)));
  }
  if (rules.empty()) return malformed("it has no CORSRule");
  return rules;
}

const CorsRule* match_cors(const std::vector<CorsRule>& rules, std::string_view origin,
                           std::string_view method, std::string_view headers) {
  const auto all_headers_fit = [&](const CorsRule& rule) {
    for (std::string_view left = headers; !left.empty();) {
      const std::size_t comma = std::min(left.find(','), left.size());
      std::string_view one = left.substr(0, comma);
      left.remove_prefix(std::min(comma + 1, left.size()));
      while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
      while (!one.empty() && one.back() == ' ') one.remove_suffix(1);
      if (!one.empty() && !fits_any(rule.headers, one)) return false;
    }
    return true;
  };
  const auto at = std::find_if(rules.begin(), rules.end(), [&](const CorsRule& rule) {
    return fits_any(rule.origins, origin) &&
           std::find(rule.methods.begin(), rule.methods.end(), method) != rule.methods.end() &&
           all_headers_fit(rule);
  });
  return at == rules.end() ? nullptr : &*at;
}

namespace {

Result<std::chrono::days> parse_days(const pugi::xml_node& action) {
  const std::string text = text_of(find_child(action, "DaysAfterInitiation"));
  int days = 0;
  const auto [at, failure] = std::from_chars(text.data(), text.data() + text.size(), days);
  if (failure != std::errc{} || at != text.data() + text.size() || days < 1 || days > 36'500) {
    return s3_error("InvalidArgument",
                    fmt::format("DaysAfterInitiation is '{}'; it must be from 1 to 36500", text));
  }
  return std::chrono::days{days};
}

// Rules name what they are for by Filter, or by the older Prefix.
Result<std::string> parse_prefix(const pugi::xml_node& rule) {
  const pugi::xml_node filter = find_child(rule, "Filter");
  if (!filter) return text_of(find_child(rule, "Prefix"));
  for (const pugi::xml_node& field : filter.children()) {
    if (field.type() != pugi::node_element || is_named(field, "Prefix")) continue;
    return s3_error(
        "NotImplemented",
        fmt::format("a lifecycle Filter by {} is not supported; one by Prefix is", field.name()));
  }
  return text_of(find_child(filter, "Prefix"));
}

// Nothing when the rule is disabled.
Result<std::optional<AbandonRule>> parse_lifecycle_rule(const pugi::xml_node& node) {
  std::optional<std::chrono::days> after;
  for (const pugi::xml_node& field : node.children()) {
    if (field.type() != pugi::node_element) continue;
    if (is_named(field, "AbortIncompleteMultipartUpload")) {
      after = TRY(parse_days(field));
    } else if (!is_named(field, "ID") && !is_named(field, "Status") && !is_named(field, "Filter") &&
               !is_named(field, "Prefix")) {
      return s3_error("NotImplemented", fmt::format("the lifecycle action {} is not supported; "
                                                    "AbortIncompleteMultipartUpload is",
                                                    field.name()));
    }
  }
  const std::string status = text_of(find_child(node, "Status"));
  if (status != "Enabled" && status != "Disabled") {
    return malformed(fmt::format("Status is '{}'; it must be Enabled or Disabled", status));
  }
  if (!after) return malformed("a Rule needs an action");
  AbandonRule rule{TRY(parse_prefix(node)), *after};
  if (status == "Disabled") return std::optional<AbandonRule>{};
  return std::optional{std::move(rule)};
}

}  // namespace

Result<std::vector<AbandonRule>> parse_lifecycle(std::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node root = TRY(load_document(document, xml, "LifecycleConfiguration"));
  std::vector<AbandonRule> rules;
  std::size_t count = 0;
  for (const pugi::xml_node& child : root.children()) {
    if (!is_named(child, "Rule")) continue;
    if (++count > kMaxLifecycleRules) return malformed("1000 rules are the most");
    std::optional<AbandonRule> rule = TRY(parse_lifecycle_rule(child));
    if (rule) rules.push_back(*std::move(rule));
  }
  if (count == 0) return malformed("it has no Rule");
  return rules;
}

}  // namespace atelier::objects::internal
