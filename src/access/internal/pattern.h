// A text with `*` and `?`, compiled so that a character that stands for itself is told from one
// that stands for others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::access::internal {

class Pattern {
 public:
  // `${*}`, `${?}` and `${$}` are characters; any other `${...}` (a policy variable) is refused.
  static Result<Pattern> parse(std::string_view text);
  // Every character stands for itself.
  static Pattern literal(std::string_view text);

  // In time of at most |pattern| * |text|.
  [[nodiscard]] bool matches(std::string_view text, bool ignore_case = false) const;

 private:
  enum class Kind : char { kSame, kOne, kMany };
  struct Item {
    Kind kind;
    char character;
  };
  std::vector<Item> items_;
};

}  // namespace atelier::access::internal
