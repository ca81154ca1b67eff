// Finds the metrics of a job in the lines of its log, by the user's regular expressions. They and
// the lines may be hostile: matching takes linear time (RE2).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spec.h"

namespace atelier::agent {

class MetricMatcher {
 public:
  explicit MetricMatcher(const std::vector<MetricDefinition>& definitions);
  MetricMatcher(MetricMatcher&&) noexcept;
  ~MetricMatcher();

  struct Match {
    std::string_view name;
    double value;
  };
  // The first match of each definition in the line; the first group is the value. What is not a
  // finite number is no match.
  void match(std::string_view line, std::vector<Match>& out);
  // Definitions that cannot be used, in words.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  // Definitions that have not matched a line so far, in words.
  [[nodiscard]] std::vector<std::string> unmatched() const;

 private:
  struct Pattern;
  std::vector<Pattern> patterns_;
  std::vector<std::string> warnings_;
};

}  // namespace atelier::agent
