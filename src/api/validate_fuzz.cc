// Bytes -> JSON -> each served operation's validation -> the checks beyond the model. What was
// found valid must stay valid once it is cut to the model, and must survive its own text.
#include "api/validate.h"
#include "jobs/request_rules.h"

#include <cstdint>

using namespace atelier;       // NOLINT: a fuzz target is all one function
using namespace atelier::api;  // NOLINT

namespace {

void check(const json::value& input, const Operation& operation) {
  if (validate(input, *operation.input)) return;
  const json::value known = project(input, *operation.input);
  ATELIER_CHECK(!validate(known, *operation.input), "project() made a valid request invalid");
  ATELIER_CHECK(parse_json(json::serialize(known), 40).has_value(), "text that is not JSON");
  if (operation.name == "CreateTrainingJob") {
    static_cast<void>(jobs::check_request(known));
    static_cast<void>(jobs::request_notes(known));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Result<json::value> input =
      parse_json(std::string_view(reinterpret_cast<const char*>(data), size), 32);
  if (!input) return 0;
  for (const ServiceModel& service : service_models()) {
    for (const Operation& operation : service.operations) {
      if (operation.served && operation.input != nullptr) check(*input, operation);
    }
  }
  return 0;
}
