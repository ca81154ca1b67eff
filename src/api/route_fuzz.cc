// Lines of a request's head -> the route, whose names must be fit to print.
#include "api/route.h"

#include <algorithm>
#include <cstdint>

using namespace atelier;       // NOLINT: a fuzz target is all one function
using namespace atelier::api;  // NOLINT

namespace {
bool fit_to_print(std::string_view text) {
  return text.size() <= 128 &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f && c != '"'; });
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto line = [&rest] {
    const std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    return std::string(text);
  };
  http::RequestHead head;
  head.method = line();
  head.target = line();
  for (const char* name : {"X-Amz-Target", "Authorization", "Content-Type"}) {
    if (std::string value = line(); !value.empty()) head.headers.add(name, std::move(value));
  }
  const Route route = route_of(head);
  ATELIER_CHECK(fit_to_print(route.service_name) && fit_to_print(route.operation),
                "a route with a name that can not be printed");
  return 0;
}
