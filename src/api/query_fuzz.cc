// A form's bytes -> fields -> validation -> a reply and an error in XML, which must be UTF-8.
#include "api/query.h"

#include <cstdint>

#include "api/text.h"
#include "api/validate.h"

using namespace atelier;       // NOLINT: a fuzz target is all one function
using namespace atelier::api;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Result<QueryCall> call =
      parse_query_call(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!call) return 0;
  const ServiceModel& iam = *find_service("iam");
  const Operation& get_role = *find_operation(iam, "GetRole");
  const auto error = validate(call->input, *get_role.input);
  const std::string xml =
      error ? query_error(iam.xml_namespace, *error, "id")
            : query_reply(iam, get_role, {{"Role", project(call->input, *get_role.input)}}, "id");
  ATELIER_CHECK(is_valid_utf8(xml), "a reply that is not UTF-8");
  const Operation& statistics = *find_operation(*find_service("monitoring"), "GetMetricStatistics");
  const json::value shaped = shape_query_input(call->input, *statistics.input);
  if (!validate(shaped, *statistics.input)) {
    ATELIER_CHECK(!validate(project(shaped, *statistics.input), *statistics.input),
                  "project() made a valid request invalid");
  }
  return 0;
}
