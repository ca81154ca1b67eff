// A policy as it is evaluated; policy_parser.cc makes it, policy.cc asks it.
#pragma once

#include <string>
#include <vector>

#include "access/internal/pattern.h"
#include "access/policy.h"

namespace atelier::access {
namespace internal {

struct Condition {
  std::string key;  // lower case
  std::vector<Pattern> values;
  bool ignore_case = false;
  bool negated = false;  // holds when no value fits
  bool holds_when_absent = false;
  // Of "Null": asks whether the key is absent, and nothing else.
  bool asks_absence = false;
  bool wants_absent = false;
};

struct Statement {
  bool allow = false;
  std::vector<Pattern> actions;
  bool all_but_actions = false;  // NotAction
  std::vector<Pattern> resources;
  bool all_but_resources = false;  // NotResource
  std::vector<Condition> conditions;
};

}  // namespace internal

struct Policy::Rules {
  std::string text;
  std::vector<internal::Statement> statements;
};

// Makes policies from text; a class for Policy to know as its friend.
class PolicyParser {
 public:
  static Result<Policy> parse(std::string_view text);
};

}  // namespace atelier::access
