// CloudWatch Logs' filter patterns for unstructured lines: "ERROR timeout" (all terms), "?ERROR
// ?WARN" (any of them), "ERROR -retry" (but not), and "\"exact words\"". Case counts.
//
//   const FilterPattern pattern = TRY(FilterPattern::parse("?loss ?accuracy"));
//   pattern.matches("epoch 1 loss=0.5");
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::api {

class FilterPattern {
 public:
  // kInvalidArgument for JSON and column patterns ({...}, [...]) and regular expressions (%...%),
  // which are not served, and for a quote that is not closed. The empty pattern matches all.
  static Result<FilterPattern> parse(std::string_view text);

  [[nodiscard]] bool matches(std::string_view line) const;

 private:
  std::vector<std::string> all_, any_, none_;
};

}  // namespace atelier::api
