// STS and IAM as far as the SageMaker SDK asks: who is calling, and what a role is. There is one
// account; every role name in it is a role that SageMaker may assume, since jobs run as this
// machine's own jobs whatever the role.
#include <fmt/format.h>

#include "api/operations.h"
#include "base/hash.h"
#include "http/message.h"

namespace atelier::api {

namespace {
constexpr std::string_view kTrustPolicy =
    R"({"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":)"
    R"({"Service":"sagemaker.amazonaws.com"},"Action":"sts:AssumeRole"}]})";
// Roles have no history here; clients want a date.
constexpr std::int64_t kRoleCreated = 1511913600;  // 2017-11-29, the day SageMaker was announced
}  // namespace

Outcome get_caller_identity(const Call& call) {
  return json::object{
      {"UserId", call.caller.user_id}, {"Account", call.caller.account}, {"Arn", call.caller.arn}};
}

Outcome get_role(const Call& call) {
  const std::string name = find_string(call.input, "RoleName").value_or("");
  // AWS's identifiers of roles are AROA and 17 characters; the same name gives the same one.
  std::string id = "AROA";
  for (const char c : sha256_hex(name).substr(0, 17)) {
    id += static_cast<char>(c >= 'a' ? c - 'a' + 'A' : c);
  }
  return json::object{{"Role",
                       {{"Path", "/"},
                        {"RoleName", name},
                        {"RoleId", id},
                        {"Arn", fmt::format("arn:aws:iam::{}:role/{}", call.parts.account, name)},
                        {"CreateDate", kRoleCreated},
                        {"AssumeRolePolicyDocument", http::percent_encode(kTrustPolicy)},
                        {"Description", "Every role name is a role of this Atelier"},
                        {"MaxSessionDuration", 3600}}}};
}

}  // namespace atelier::api
