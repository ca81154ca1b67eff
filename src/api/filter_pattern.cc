#include "api/filter_pattern.h"

#include <fmt/format.h>

#include <algorithm>

namespace atelier::api {
namespace {

Error wrong(std::string message) { return Error{Code::kInvalidArgument, std::move(message)}; }

// Takes a term, quoted or up to the next blank, off the front of `rest`.
Result<std::string> take_term(std::string_view& rest) {
  std::string term;
  if (!rest.starts_with('"')) {
    const std::size_t end = rest.find(' ');
    term = rest.substr(0, end);
    rest.remove_prefix(term.size());
    return term;
  }
  for (std::size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == '"') {
      rest.remove_prefix(i + 1);
      return term;
    }
    if (rest[i] == '\\' && i + 1 < rest.size()) ++i;  // \" and \\ stand for themselves
    term += rest[i];
  }
  return wrong(fmt::format("filterPattern: the quote at {} is not closed", rest));
}

}  // namespace

Result<FilterPattern> FilterPattern::parse(std::string_view text) {
  FilterPattern pattern;
  std::string_view rest = text;
  while (true) {
    const std::size_t begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) return pattern;
    rest.remove_prefix(begin);
    if (rest.front() == '{' || rest.front() == '[' || rest.front() == '%') {
      return wrong(fmt::format(
          "filterPattern '{}': JSON and column patterns and regular expressions are not served; "
          "give terms, such as ?ERROR ?WARN",
          text));
    }
    std::vector<std::string>& terms = rest.front() == '?'   ? pattern.any_
                                      : rest.front() == '-' ? pattern.none_
                                                            : pattern.all_;
    if (&terms != &pattern.all_) rest.remove_prefix(1);
    std::string term = TRY(take_term(rest));
    if (term.empty()) return wrong(fmt::format("filterPattern '{}' has an empty term", text));
    terms.push_back(std::move(term));
  }
}

bool FilterPattern::matches(std::string_view line) const {
  const auto has = [&](const std::string& term) {
    return line.find(term) != std::string_view::npos;
  };
  return std::ranges::all_of(all_, has) && std::ranges::none_of(none_, has) &&
         (any_.empty() || std::ranges::any_of(any_, has));
}

}  // namespace atelier::api
