#include "access/internal/pattern.h"

#include <fmt/core.h>

namespace atelier::access::internal {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

Result<Pattern> Pattern::parse(std::string_view text) {
  Pattern pattern;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (text.substr(i, 2) == "${") {
      const std::string_view escape = text.substr(i, 4);
      if (escape != "${*}" && escape != "${?}" && escape != "${$}") {
        return Error{Code::kInvalidArgument,
                     fmt::format("'{}' has a policy variable, which this server does not know "
                                 "(write ${{$}} for the character)",
                                 text.substr(0, 200))};
      }
      pattern.items_.push_back({Kind::kSame, text[i + 2]});
      i += 3;
    } else if (c == '*') {
      pattern.items_.push_back({Kind::kMany, c});
    } else {
      pattern.items_.push_back({c == '?' ? Kind::kOne : Kind::kSame, c});
    }
  }
  return pattern;
}

Pattern Pattern::literal(std::string_view text) {
  Pattern pattern;
  for (const char c : text) pattern.items_.push_back({Kind::kSame, c});
  return pattern;
}

// Goes back to the last `*` alone when something does not fit: what an earlier one took can stay,
// for the last can take the rest.
bool Pattern::matches(std::string_view text, bool ignore_case) const {
  std::size_t item = 0;
  std::size_t at = 0;
  std::size_t star = items_.size();  // position after the last `*`; none yet: the end
  std::size_t star_at = 0;
  bool has_star = false;
  const auto fits = [&](const Item& wanted, char c) {
    if (wanted.kind == Kind::kOne) return true;
    if (wanted.kind == Kind::kMany) return false;
    return ignore_case ? lower(wanted.character) == lower(c) : wanted.character == c;
  };
  while (at < text.size()) {
    if (item < items_.size() && items_[item].kind == Kind::kMany) {
      has_star = true;
      star = ++item;
      star_at = at;
    } else if (item < items_.size() && fits(items_[item], text[at])) {
      ++item;
      ++at;
    } else if (has_star) {
      item = star;
      at = ++star_at;
    } else {
      return false;
    }
  }
  while (item < items_.size() && items_[item].kind == Kind::kMany) ++item;
  return item == items_.size();
}

}  // namespace atelier::access::internal
