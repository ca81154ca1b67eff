// Policies of strangers: whatever the text, parsing ends, and so does every decision.
#include <cstdint>
#include <string_view>

#include "access/policy.h"
#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier::access;  // NOLINT
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto policy = Policy::parse(text);
  if (!policy) return 0;
  const std::pair<std::string_view, std::string_view> context[] = {{"s3:prefix", "train/"}};
  const Request request{"s3:GetObject", "arn:aws:s3:::bucket/aaaaaaaaaaaaaaaaaaaaaaaab", context};
  const Decision first = policy->decide(request);
  // What is written out again decides the same.
  const auto again = Policy::parse(policy->text());
  ATELIER_CHECK(again && again->decide(request) == first, "a policy changed by being written");
  return 0;
}
