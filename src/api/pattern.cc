#include "api/pattern.h"

#include <re2/re2.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/shapes.h"

namespace atelier::api {
namespace {

struct Compiled {
  std::once_flag once;
  std::unique_ptr<RE2> match, never;
};

std::unique_ptr<RE2> compile(std::string_view expression) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_never_capture(true);
  auto compiled =
      std::make_unique<RE2>(re2::StringPiece(expression.data(), expression.size()), options);
  return compiled->ok() ? std::move(compiled) : nullptr;
}

const Compiled& compiled_pattern(int index) {
  static std::vector<Compiled> cache(patterns().size());
  const auto position = static_cast<std::size_t>(index);
  Compiled& entry = cache[position];
  std::call_once(entry.once, [&entry, position] {
    const Pattern& pattern = patterns()[position];
    entry.match = compile(pattern.match);
    if (!pattern.never.empty()) entry.never = compile(pattern.never);
  });
  return entry;
}

bool full_match(std::string_view text, const RE2& expression) {
  return RE2::FullMatch(re2::StringPiece(text.data(), text.size()), expression);
}

}  // namespace

bool matches(int index, std::string_view text) {
  const Compiled& pattern = compiled_pattern(index);
  if (pattern.match != nullptr && !full_match(text, *pattern.match)) return false;
  return pattern.never == nullptr || !full_match(text, *pattern.never);
}

bool pattern_is_valid(int index) {
  const Compiled& pattern = compiled_pattern(index);
  const bool needs_second = !patterns()[static_cast<std::size_t>(index)].never.empty();
  return pattern.match != nullptr && (!needs_second || pattern.never != nullptr);
}

}  // namespace atelier::api
