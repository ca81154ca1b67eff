// What the operations of CloudWatch Logs share: one group, and its errors.
#pragma once

#include <optional>
#include <string>

#include "api/operations.h"

namespace atelier::api {

inline constexpr std::string_view kLogGroup = "/aws/sagemaker/TrainingJobs";

std::string log_group_arn(const Parts& parts);
ApiError log_not_found(std::string_view what);  // "group" or "stream"
ApiError invalid_parameter(std::string message);
// Nothing when the request names our group, by its name or by its identifier (name or ARN).
std::optional<ApiError> check_group(const Call& call);
// A member that is milliseconds since 1970, cut to times that can be written.
std::optional<Time> milliseconds_at(const json::value& input, std::string_view name);

}  // namespace atelier::api
