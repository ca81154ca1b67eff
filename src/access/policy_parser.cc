#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "access/internal/rules.h"
#include "base/strict_json.h"

namespace atelier::access {
namespace {

using internal::Condition;
using internal::Pattern;
using internal::Statement;

constexpr std::size_t kMaxText = 64 * 1024;
constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMaxStatements = 256;
constexpr std::size_t kMaxList = 1024;
constexpr std::size_t kMaxPattern = 4096;
// A limit on the whole keeps one decision in microseconds.
constexpr std::size_t kMaxPatterns = 4096;

Error wrong(std::string_view place, std::string_view what) {
  return Error{Code::kInvalidArgument, fmt::format("{}: {}", place, what)};
}

// A string or a list of strings, as IAM writes both.
Result<std::vector<std::string>> texts(const json::value& value, std::string_view place) {
  std::vector<std::string> found;
  const auto take = [&](const json::value& item) -> Result<void> {
    if (item.is_bool()) {
      found.emplace_back(item.get_bool() ? "true" : "false");  // as conditions write them
    } else if (item.is_string()) {
      found.emplace_back(item.get_string());
    } else {
      return wrong(place, "must be a string or a list of strings");
    }
    if (found.back().size() > kMaxPattern) {
      return wrong(place, fmt::format("longer than {} characters", kMaxPattern));
    }
    return {};
  };
  if (!value.is_array()) {
    TRY(take(value));
    return found;
  }
  const json::array& list = value.get_array();
  if (list.empty() || list.size() > kMaxList) {
    return wrong(place, fmt::format("must have 1 to {} entries", kMaxList));
  }
  for (const json::value& item : list) TRY(take(item));
  return found;
}

class Parser {
 public:
  Result<std::vector<Statement>> document(const json::value& value) {
    const json::object* object = value.if_object();
    if (object == nullptr) return wrong("policy", "must be a JSON object");
    for (const auto& [name, member] : *object) {
      if (name == "Version") {
        if (member != "2012-10-17" && member != "2008-10-17") {
          return wrong("Version", "must be \"2012-10-17\"");
        }
      } else if (name != "Id" && name != "Statement") {
        return wrong(std::string_view{name}.substr(0, 64),
                     "is not known; a policy has Version, Id and Statement");
      }
    }
    const json::value* statements = object->if_contains("Statement");
    if (statements == nullptr) return wrong("Statement", "is missing");
    std::vector<Statement> found;
    if (!statements->is_array()) {
      found.push_back(TRY(statement(*statements, "Statement")));
      return found;
    }
    const json::array& list = statements->get_array();
    if (list.empty() || list.size() > kMaxStatements) {
      return wrong("Statement", fmt::format("must have 1 to {} statements", kMaxStatements));
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
      found.push_back(TRY(statement(list[i], fmt::format("Statement[{}]", i))));
    }
    return found;
  }

 private:
  Result<Statement> statement(const json::value& value, const std::string& place) {
    const json::object* object = value.if_object();
    if (object == nullptr) return wrong(place, "must be an object");
    Statement made;
    bool has_effect = false;
    for (const auto& [key, member] : *object) {
      const std::string_view name = key;
      const std::string where = fmt::format("{}.{}", place, name.substr(0, 64));
      if (name == "Sid") continue;
      if (name == "Effect") {
        if (member != "Allow" && member != "Deny") return wrong(where, "must be Allow or Deny");
        made.allow = member == "Allow";
        has_effect = true;
      } else if (name == "Action" || name == "NotAction") {
        if (!made.actions.empty()) return wrong(where, "stands beside its opposite");
        made.actions = TRY(actions(member, where));
        made.all_but_actions = name == "NotAction";
      } else if (name == "Resource" || name == "NotResource") {
        if (!made.resources.empty()) return wrong(where, "stands beside its opposite");
        made.resources = TRY(patterns(member, where));
        made.all_but_resources = name == "NotResource";
      } else if (name == "Condition") {
        made.conditions = TRY(conditions(member, where));
      } else {
        return wrong(where, "is not supported");
      }
    }
    if (!has_effect) return wrong(place, "has no Effect");
    if (made.actions.empty()) return wrong(place, "has no Action");
    if (made.resources.empty()) return wrong(place, "has no Resource");
    return made;
  }

  Result<std::vector<Pattern>> actions(const json::value& value, const std::string& where) {
    for (const std::string& action : TRY(texts(value, where))) {
      const std::size_t colon = action.find(':');
      const bool named = colon != std::string::npos && colon > 0 && colon + 1 < action.size();
      if (action != "*" && !named) {
        return wrong(where,
                     fmt::format("'{}' is not of the form service:Action", action.substr(0, 100)));
      }
    }
    return patterns(value, where);
  }

  Result<std::vector<Pattern>> patterns(const json::value& value, const std::string& where,
                                        bool literal = false) {
    std::vector<Pattern> made;
    for (const std::string& text : TRY(texts(value, where))) {
      if (++patterns_ > kMaxPatterns) {
        return wrong(where, fmt::format("more than {} entries in one policy", kMaxPatterns));
      }
      Result<Pattern> pattern = Pattern::parse(text);
      if (!pattern) return wrong(where, pattern.error().message);
      made.push_back(literal ? Pattern::literal(text) : *std::move(pattern));
    }
    return made;
  }

  Result<std::vector<Condition>> conditions(const json::value& value, const std::string& where) {
    const json::object* operators = value.if_object();
    if (operators == nullptr) return wrong(where, "must be an object");
    std::vector<Condition> made;
    for (const auto& [name, keys] : *operators) {
      const std::string place = fmt::format("{}.{}", where, std::string_view{name}.substr(0, 64));
      const json::object* tested = keys.if_object();
      if (tested == nullptr) return wrong(place, "must be an object");
      for (const auto& [key, values] : *tested) {
        made.push_back(TRY(condition(name, key, values, place)));
      }
    }
    return made;
  }

  Result<Condition> condition(std::string_view name, std::string_view key,
                              const json::value& values, const std::string& place) {
    Condition made;
    made.key = key;
    std::ranges::transform(made.key, made.key.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    const bool known = std::ranges::any_of(condition_keys(), [&](std::string_view each) {
      return each.size() == key.size() && Pattern::literal(each).matches(key, true);
    });
    if (!known) {
      return wrong(place, fmt::format("the key '{}' is not known; known are {}", key.substr(0, 100),
                                      fmt::join(condition_keys(), ", ")));
    }
    const bool if_exists = name.ends_with("IfExists");
    if (if_exists) name.remove_suffix(std::string_view{"IfExists"}.size());
    struct Kind {
      std::string_view name;
      bool negated, ignore_case, literal;
    };
    static constexpr Kind kKinds[] = {
        {"StringEquals", false, false, true},
        {"StringNotEquals", true, false, true},
        {"StringEqualsIgnoreCase", false, true, true},
        {"StringNotEqualsIgnoreCase", true, true, true},
        {"StringLike", false, false, false},
        {"StringNotLike", true, false, false},
        {"ArnEquals", false, false, false},
        {"ArnLike", false, false, false},
        {"ArnNotEquals", true, false, false},
        {"ArnNotLike", true, false, false},
        {"Bool", false, true, true},
    };
    if (name == "Null" && !if_exists) {
      const std::vector<std::string> wanted = TRY(texts(values, place));
      if (wanted.size() != 1 || (wanted[0] != "true" && wanted[0] != "false")) {
        return wrong(place, "must be true or false");
      }
      made.asks_absence = true;
      made.wants_absent = wanted[0] == "true";
      return made;
    }
    for (const Kind& kind : kKinds) {
      if (kind.name != name) continue;
      made.negated = kind.negated;
      made.ignore_case = kind.ignore_case;
      made.holds_when_absent = if_exists || kind.negated;
      made.values = TRY(patterns(values, place, kind.literal));
      return made;
    }
    return wrong(place, "the operator is not supported");
  }

  std::size_t patterns_ = 0;
};

}  // namespace

Result<Policy> PolicyParser::parse(std::string_view text) {
  if (text.size() > kMaxText) {
    return wrong("policy", fmt::format("{} bytes; at most {}", text.size(), kMaxText));
  }
  const Result<json::value> value = parse_strict_json(text, kMaxDepth);
  if (!value) return wrong("policy", value.error().message);
  Parser parser;
  Policy::Rules rules;
  rules.statements = TRY(parser.document(*value));
  rules.text = json::serialize(*value);
  return Policy{std::make_shared<const Policy::Rules>(std::move(rules))};
}

}  // namespace atelier::access
