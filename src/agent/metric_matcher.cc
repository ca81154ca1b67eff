#include "agent/metric_matcher.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <charconv>
#include <cmath>
#include <optional>

namespace atelier::agent {

struct MetricMatcher::Pattern {
  std::string name;
  std::string text;
  std::unique_ptr<re2::RE2> regex;
  std::uint64_t matches = 0;
  std::string not_a_number;  // the first text that matched and is no number
};

namespace {

std::optional<double> parse_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '+')) text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

MetricMatcher::MetricMatcher(const std::vector<MetricDefinition>& definitions) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  // Lines are bytes: what is not UTF-8 must not hide the rest of its line.
  options.set_encoding(re2::RE2::Options::EncodingLatin1);
  options.set_max_mem(std::int64_t{8} << 20);
  for (const MetricDefinition& definition : definitions) {
    auto regex = std::make_unique<re2::RE2>(definition.regex, options);
    if (!regex->ok()) {
      warnings_.push_back(fmt::format("metric '{}': the regular expression '{}' cannot be used: {}",
                                      definition.name, definition.regex, regex->error()));
    } else if (regex->NumberOfCapturingGroups() < 1) {
      warnings_.push_back(fmt::format(
          "metric '{}': the regular expression '{}' has no group for the value, such as "
          "([0-9.]+)",
          definition.name, definition.regex));
    } else {
      patterns_.push_back({definition.name, definition.regex, std::move(regex), 0, {}});
    }
  }
}

MetricMatcher::MetricMatcher(MetricMatcher&&) noexcept = default;
MetricMatcher::~MetricMatcher() = default;

void MetricMatcher::match(std::string_view line, std::vector<Match>& out) {
  const re2::StringPiece text{line.data(), line.size()};
  for (Pattern& pattern : patterns_) {
    re2::StringPiece groups[2];
    if (!pattern.regex->Match(text, 0, text.size(), re2::RE2::UNANCHORED, groups, 2)) continue;
    const std::string_view found{groups[1].data() == nullptr ? "" : groups[1].data(),
                                 groups[1].size()};
    const std::optional<double> value = parse_number(found);
    if (value) {
      ++pattern.matches;
      out.push_back({pattern.name, *value});
    } else if (pattern.not_a_number.empty()) {
      pattern.not_a_number = std::string{found.substr(0, 40)};
    }
  }
}

std::vector<std::string> MetricMatcher::unmatched() const {
  std::vector<std::string> words;
  for (const Pattern& pattern : patterns_) {
    if (pattern.matches > 0) continue;
    words.push_back(pattern.not_a_number.empty()
                        ? fmt::format("metric '{}': no line of the log matched '{}'", pattern.name,
                                      pattern.text)
                        : fmt::format("metric '{}': '{}' matched '{}', which is no finite number",
                                      pattern.name, pattern.text, pattern.not_a_number));
  }
  return words;
}

}  // namespace atelier::agent
