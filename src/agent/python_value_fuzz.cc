#include <cstdint>
#include <string_view>

#include "agent/python_value.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier::agent;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  python_upper(text);
  python_length(text);
  const auto value = parse_python_json(text);
  if (!value) return 0;
  python_repr(*value);
  // What is printed reads back to what is printed.
  const std::string once = python_dumps(*value);
  const auto again = parse_python_json(once);
  ATELIER_CHECK(again.has_value(), "printed JSON does not parse: " + once);
  ATELIER_CHECK(python_dumps(*again) == once, "printed JSON changes: " + once);
  return 0;
}
