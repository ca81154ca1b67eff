#include "access/policy.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "access/internal/rules.h"

namespace atelier::access {
namespace {

using internal::Condition;
using internal::Pattern;
using internal::Statement;

// A key has at most 1,024 bytes, so that an ARN of an object fits.
constexpr std::size_t kMaxWordsOfName = 1200;
constexpr std::string_view kPrincipalArn = "aws:principalarn";  // lower case, as conditions are

bool equal_without_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  return std::ranges::equal(a, b, {}, lower, lower);
}

bool any_matches(const std::vector<Pattern>& patterns, std::string_view text, bool ignore_case) {
  return std::ranges::any_of(
      patterns, [&](const Pattern& pattern) { return pattern.matches(text, ignore_case); });
}

// `principal`: whom the policy is about, when that is not who asks.
bool holds(const Condition& condition, const Request& request, const std::string* principal) {
  if (principal != nullptr && condition.key == kPrincipalArn) {
    if (condition.asks_absence) return !condition.wants_absent;
    return any_matches(condition.values, *principal, condition.ignore_case) != condition.negated;
  }
  const auto found = std::ranges::find_if(request.context, [&](const auto& pair) {
    return equal_without_case(pair.first, condition.key);
  });
  const bool absent = found == request.context.end();
  if (condition.asks_absence) return absent == condition.wants_absent;
  if (absent) return condition.holds_when_absent;
  return any_matches(condition.values, found->second, condition.ignore_case) != condition.negated;
}

bool applies(const Statement& statement, const Request& request, const std::string* principal) {
  return any_matches(statement.actions, request.action, true) != statement.all_but_actions &&
         any_matches(statement.resources, request.resource, false) != statement.all_but_resources &&
         std::ranges::all_of(statement.conditions, [&](const Condition& condition) {
           return holds(condition, request, principal);
         });
}

}  // namespace

Result<Policy> Policy::parse(std::string_view text) { return PolicyParser::parse(text); }

const Policy& Policy::everything() {
  static const Policy policy =
      parse(
          R"({"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]})")
          .value();
  return policy;
}

const Policy& Policy::nothing() {
  static const Policy policy =
      parse(
          R"({"Version":"2012-10-17","Statement":[{"Effect":"Allow","NotAction":"*","NotResource":"*"}]})")
          .value();
  return policy;
}

Policy Policy::as_of(std::string_view principal_arn) const {
  Policy policy{*this};
  policy.principal_ = std::make_shared<const std::string>(principal_arn);
  return policy;
}

Decision Policy::decide(const Request& request) const {
  Decision decision = Decision::kImplicitDeny;
  for (const Statement& statement : rules_->statements) {
    if (statement.allow && decision == Decision::kAllowed) continue;
    if (!applies(statement, request, principal_.get())) continue;
    if (!statement.allow) return Decision::kExplicitDeny;
    decision = Decision::kAllowed;
  }
  return decision;
}

bool Policy::could_allow(std::string_view action) const {
  return std::ranges::any_of(rules_->statements, [&](const Statement& statement) {
    return statement.allow &&
           any_matches(statement.actions, action, true) != statement.all_but_actions;
  });
}

const std::string& Policy::text() const { return rules_->text; }

Decision decide(std::span<const Policy> policies, const Request& request) {
  Decision decision = Decision::kImplicitDeny;
  for (const Policy& policy : policies) {
    const Decision one = policy.decide(request);
    if (one == Decision::kExplicitDeny) return one;
    if (one == Decision::kAllowed) decision = one;
  }
  return decision;
}

std::string escape_pattern(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '*' || c == '?' || c == '$') {
      escaped.append("${").append(1, c).append("}");
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string refusal_words(std::string_view principal_arn, const Request& request,
                          Decision decision) {
  return fmt::format(
      "User: {} is not authorized to perform: {} on resource: {} {}", principal_arn, request.action,
      request.resource.substr(0, kMaxWordsOfName),
      decision == Decision::kExplicitDeny
          ? "with an explicit deny in an identity-based policy"
          : fmt::format("because no identity-based policy allows the {} action", request.action));
}

std::span<const std::string_view> condition_keys() {
  static constexpr std::array<std::string_view, 5> kKeys = {
      "s3:prefix", "s3:delimiter", "aws:PrincipalArn", "aws:SecureTransport",
      "iam:PassedToService"};
  return kKeys;
}

}  // namespace atelier::access
