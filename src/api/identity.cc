// STS and IAM as far as the SageMaker SDK asks: who is calling, and what a role is. There is one
// account; every role name in it is a role that SageMaker may assume, since jobs run as this
// machine's own jobs whatever the role.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "access/policy.h"
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
constexpr std::string_view kListedRole = "atelier";
constexpr std::size_t kMostSimulated = 10'000;

json::object role_object(const Parts& parts, std::string_view name) {
  // AWS's identifiers of roles are AROA and 17 characters; the same name gives the same one.
  std::string id = "AROA";
  for (const char c : sha256_hex(name).substr(0, 17)) {
    id += static_cast<char>(c >= 'a' ? c - 'a' + 'A' : c);
  }
  return {{"Path", "/"},
          {"RoleName", name},
          {"RoleId", id},
          {"Arn", fmt::format("arn:aws:iam::{}:role/{}", parts.account, name)},
          {"CreateDate", kRoleCreated},
          {"AssumeRolePolicyDocument", http::percent_encode(kTrustPolicy)},
          {"Description", "Every role name is a role of this Atelier"},
          {"MaxSessionDuration", 3600}};
}

std::string_view decision_of(access::Decision decision) {
  switch (decision) {
    case access::Decision::kAllowed:
      return "allowed";
    case access::Decision::kExplicitDeny:
      return "explicitDeny";
    case access::Decision::kImplicitDeny:
      break;
  }
  return "implicitDeny";
}

}  // namespace

Outcome get_caller_identity(const Call& call) {
  return json::object{
      {"UserId", call.caller.user_id}, {"Account", call.caller.account}, {"Arn", call.caller.arn}};
}

Outcome get_role(const Call& call) {
  return json::object{
      {"Role", role_object(call.parts, find_string(call.input, "RoleName").value_or(""))}};
}

// Any name is a role; the one that `atelier env` names stands for all of them.
Outcome list_roles(const Call& call) {
  const std::string prefix = find_string(call.input, "PathPrefix").value_or("/");
  json::array roles;
  if (prefix == "/") roles.push_back(role_object(call.parts, kListedRole));
  return json::object{{"Roles", std::move(roles)}, {"IsTruncated", false}};
}

// A role's name carries no policy: through it a caller may what the policies of its own key allow,
// and no more (a job runs with keys of its own, which reach its data alone).
Outcome simulate_principal_policy(const Call& call) {
  const std::string source = find_string(call.input, "PolicySourceArn").value_or("");
  const std::string role = fmt::format("arn:aws:iam::{}:role/", call.parts.account);
  if (!source.starts_with(role) && source != call.caller.arn) {
    return ApiError{404, "NoSuchEntity",
                    fmt::format("The principal '{}' can not be found: give a role ({}NAME) or the "
                                "caller's own ARN",
                                source, role)};
  }
  const json::array everything{"*"};
  const json::array* named = find_array(call.input, "ResourceArns");
  const json::array& resources = named != nullptr && !named->empty() ? *named : everything;
  const json::array& actions = *find_array(call.input, "ActionNames");
  const std::size_t pairs = actions.size() * resources.size();
  if (pairs > kMostSimulated) {
    return ApiError{400, "InvalidInput",
                    fmt::format("{} actions on {} resources are {} decisions; {} are the most of "
                                "one call: ask for fewer at once",
                                actions.size(), resources.size(), pairs, kMostSimulated)};
  }
  std::size_t next = 0;
  if (const auto marker = find_string(call.input, "Marker")) {
    const auto [end, failure] =
        std::from_chars(marker->data(), marker->data() + marker->size(), next);
    if (failure != std::errc{} || end != marker->data() + marker->size() || next >= pairs) {
      return ApiError{400, "InvalidInput", "Marker is not one that an earlier page gave"};
    }
  }
  const auto most = static_cast<std::size_t>(find_int(call.input, "MaxItems").value_or(100));
  const std::size_t end = std::min(pairs, next + most);
  json::array results;
  for (; next < end; ++next) {
    const json::value& action = actions[next / resources.size()];
    const json::value& resource = resources[next % resources.size()];
    const std::string asked(action.get_string());
    const std::string on(resource.get_string());
    const access::Decision decision = call.caller.authority.decide({asked, on});
    results.push_back(json::object{{"EvalActionName", action},
                                   {"EvalResourceName", resource},
                                   {"EvalDecision", decision_of(decision)},
                                   {"MatchedStatements", json::array{}},
                                   {"MissingContextValues", json::array{}}});
  }
  json::object reply{{"EvaluationResults", std::move(results)}, {"IsTruncated", end < pairs}};
  if (end < pairs) reply["Marker"] = std::to_string(end);
  return reply;
}

}  // namespace atelier::api
