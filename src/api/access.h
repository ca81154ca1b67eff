// Whether a caller may make a call, by the policies of its key: actions as AWS names them
// ("sagemaker:CreateTrainingJob"), resources as the ARNs that the input names.
#pragma once

#include <optional>
#include <string>

#include "api/operations.h"

namespace atelier::api {

// "logs:GetLogEvents" of ("logs", "GetLogEvents"); CloudWatch's prefix is not its signing name.
std::string action_of(std::string_view signing_name, std::string_view operation);

// The ARN that a valid input of the operation is about, or "*" where it names none (listings).
std::string resource_of(std::string_view signing_name, const Call& call);

// The refusal, naming principal, action and resource; nothing when the call may be made. Creating a
// job needs iam:PassRole on its role besides, and sagemaker:AddTags when it has tags.
// sts:GetCallerIdentity is everyone's.
std::optional<ApiError> refuse_access(std::string_view signing_name, const Call& call);

}  // namespace atelier::api
