// A pattern and a line, cut apart at the first newline: parsing is bounded, and a pattern that was
// taken decides on any line.
#include <cstdint>

#include "api/filter_pattern.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = text.find('\n');
  const auto pattern = atelier::api::FilterPattern::parse(text.substr(0, end));
  if (!pattern) return 0;
  static_cast<void>(pattern->matches(end == std::string_view::npos ? "" : text.substr(end + 1)));
  return 0;
}
