#include "api/access.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "access/policy.h"

namespace atelier::api {
namespace {

std::string member(const Call& call, std::string_view name) {
  return find_string(call.input, name).value_or("");
}

// The first of these that the input has names the resource, as SageMaker's ARNs do.
constexpr std::pair<std::string_view, std::string_view> kSageMakerNames[] = {
    {"TrainingJobName", "training-job"},
    {"HyperParameterTuningJobName", "hyper-parameter-tuning-job"},
    {"TransformJobName", "transform-job"},
    {"ProcessingJobName", "processing-job"},
    {"ModelName", "model"},
};

std::string sagemaker_resource(const Call& call) {
  if (std::string arn = member(call, "ResourceArn"); !arn.empty()) return arn;
  for (const auto& [name, kind] : kSageMakerNames) {
    const std::string value = member(call, name);
    if (value.empty()) continue;
    return fmt::format("arn:aws:sagemaker:{}:{}:{}/{}", call.parts.region, call.parts.account, kind,
                       value);
  }
  return "*";
}

// The name in "arn:aws:logs:us-west-2:000000000000:log-group:NAME:*", or of whatever else an
// identifier is: however a group is named, a policy sees one resource.
std::string named_group(const Call& call) {
  std::string group = member(call, "logGroupIdentifier");
  const std::string ours =
      fmt::format("arn:aws:logs:{}:{}:log-group:", call.parts.region, call.parts.account);
  if (!group.starts_with(ours)) return group;
  group.erase(0, ours.size());
  return group.substr(0, group.find(':'));
}

// A group without a stream has an empty one in the ARN, so that "log-group:NAME:*" fits both.
std::string logs_resource(const Call& call) {
  std::string group = member(call, "logGroupName");
  if (group.empty()) group = named_group(call);
  if (group.empty()) return "*";
  return fmt::format("arn:aws:logs:{}:{}:log-group:{}:log-stream:{}", call.parts.region,
                     call.parts.account, group, member(call, "logStreamName"));
}

std::string iam_resource(const Call& call) {
  if (std::string arn = member(call, "PolicySourceArn"); !arn.empty()) return arn;
  const std::string role = member(call, "RoleName");
  return role.empty() ? "*" : fmt::format("arn:aws:iam::{}:role/{}", call.parts.account, role);
}

std::optional<ApiError> check(std::string_view action, const std::string& resource,
                              const Call& call, bool query,
                              std::vector<std::pair<std::string_view, std::string_view>> context) {
  context.emplace_back("aws:PrincipalArn", call.caller.arn);
  context.emplace_back("aws:SecureTransport", call.secure ? "true" : "false");
  const access::Request request{action, resource, context};
  const access::Decision decision = call.caller.authority.decide(request);
  if (decision == access::Decision::kAllowed) return std::nullopt;
  return ApiError{query ? 403 : 400, query ? "AccessDenied" : "AccessDeniedException",
                  access::refusal_words(call.caller.arn, request, decision)};
}

}  // namespace

std::string action_of(std::string_view signing_name, std::string_view operation) {
  return fmt::format("{}:{}", signing_name == "monitoring" ? "cloudwatch" : signing_name,
                     operation);
}

std::string resource_of(std::string_view signing_name, const Call& call) {
  if (signing_name == "sagemaker" || signing_name == "atelier") return sagemaker_resource(call);
  if (signing_name == "logs") return logs_resource(call);
  if (signing_name == "iam") return iam_resource(call);
  if (signing_name == "ecr" && !member(call, "repositoryName").empty()) {
    return fmt::format("arn:aws:ecr:{}:{}:repository/{}", call.parts.region, call.parts.account,
                       member(call, "repositoryName"));
  }
  return "*";
}

std::optional<ApiError> refuse_access(std::string_view signing_name, const Call& call) {
  const std::string action = action_of(signing_name, call.operation.name);
  if (action == "sts:GetCallerIdentity") return std::nullopt;
  const ServiceModel* service = find_service(signing_name);
  const bool query = service != nullptr && service->protocols.json_version.empty();
  if (auto refused = check(action, resource_of(signing_name, call), call, query, {}))
    return refused;
  if (signing_name != "sagemaker") return std::nullopt;
  // AWS asks for it where something is made with tags.
  const json::array* tags = find_array(call.input, "Tags");
  if (call.operation.name.starts_with("Create") && tags != nullptr && !tags->empty()) {
    auto refused = check("sagemaker:AddTags", resource_of(signing_name, call), call, query, {});
    if (refused) return refused;
  }
  const std::string role = member(call, "RoleArn");
  if (role.empty()) return std::nullopt;
  return check("iam:PassRole", role, call, query,
               {{"iam:PassedToService", "sagemaker.amazonaws.com"}});
}

}  // namespace atelier::api
