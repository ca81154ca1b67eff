#include "jobs/job_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "base/log.h"
#include "jobs/job_policy.h"

namespace atelier::jobs {
namespace {

constexpr std::size_t kMaxKnown = 4096;
// Different roles one after the other, by which jobs have made jobs.
constexpr std::ptrdiff_t kMaxMakers = 16;

// Takes the first line off.
std::string_view next_line(std::string_view& lines) {
  const std::string_view line = lines.substr(0, lines.find('\n'));
  lines.remove_prefix(std::min(line.size() + 1, lines.size()));
  return line;
}

bool may_pass(const std::vector<access::Authority::Grant>& creator, std::string_view role_arn) {
  // Nothing is sent here: how the create came was asked when it did.
  static constexpr std::pair<std::string_view, std::string_view> kContext[] = {
      {"iam:PassedToService", "sagemaker.amazonaws.com"}, {"aws:SecureTransport", "true"}};
  return !role_arn.empty() &&
         access::Authority{creator}.decide({"iam:PassRole", role_arn, kContext}) ==
             access::Decision::kAllowed;
}

// Who answers for what a job makes that `creator` made with `role`; empty beyond the bound. A role
// that was passed on before stands for all that came since.
std::string creator_of_next(const std::string& creator, const std::string& role) {
  const std::size_t before = (creator + '\n').find('\n' + role + '\n');
  if (before != std::string::npos) return creator.substr(0, before + 1 + role.size());
  if (std::ranges::count(creator, '\n') >= kMaxMakers) return {};
  return creator + '\n' + role;
}

const access::Policy& makes_no_jobs() {
  static const access::Policy policy =
      access::Policy::parse(
          R"({"Statement":{"Effect":"Deny","Action":"sagemaker:Create*","Resource":"*"}})")
          .value();
  return policy;
}

}  // namespace

std::string root_of(const std::string& created_by) {
  return created_by.substr(0, created_by.find('\n'));
}

std::optional<JobAccess::Known> JobAccess::known(const http::SessionClaims& claims) const {
  // Before the look: a change that comes in between is seen the next time.
  const std::uint64_t changes = service_.wait_for_change(std::numeric_limits<std::uint64_t>::max(),
                                                         std::chrono::milliseconds{0});
  {
    const std::lock_guard lock{mutex_};
    const auto found = known_.find(claims.subject);
    if (found != known_.end() && found->second.changes == changes) {
      if (found->second.generation != claims.generation) return std::nullopt;
      return found->second;
    }
  }
  const Result<TrainingJob> job = service_.describe(claims.subject);
  if (!job || job->terminal() || to_epoch_milliseconds(job->created) != claims.generation) {
    if (!job && job.error().code != Code::kNotFound) {
      log::error(fmt::format("keys of job '{}': {}", claims.subject, job.error().message));
    }
    const std::lock_guard lock{mutex_};
    known_.erase(claims.subject);
    return std::nullopt;
  }
  Result<access::Policy> own = job_policy(job->request_json);
  const Result<json::value> request = parse_json(job->request_json);
  if (!own || !request) {
    log::error(fmt::format("keys of job '{}': {}", claims.subject,
                           own ? request.error().message : own.error().message));
    return std::nullopt;
  }
  Known made{claims.generation, changes, job->created_by,
             find_string(*request, "RoleArn").value_or(""), *std::move(own)};
  const std::lock_guard lock{mutex_};
  if (known_.size() >= kMaxKnown) known_.clear();
  known_.insert_or_assign(claims.subject, made);
  return made;
}

std::vector<access::Authority::Grant> JobAccess::grants_of(const Known& job) const {
  using Grants = std::vector<access::Authority::Grant>;
  std::string_view makers = job.created_by;
  const std::string_view root = next_line(makers);
  if (root.empty()) return {};
  Grants creator = creators_(std::string{root});
  for (access::Authority::Grant& grant : creator) {
    for (access::Policy& policy : grant) policy = policy.as_of(root);
  }
  while (!makers.empty()) {
    const std::string_view role = next_line(makers);
    if (!may_pass(creator, role)) return {};
    creator = roles_.grants_of(role);
  }
  const bool role_counts = may_pass(creator, job.role_arn);
  Grants all = std::move(creator);
  if (all.empty()) return {};
  for (access::Authority::Grant& grant : all) grant.push_back(job.own);
  for (access::Authority::Grant& grant : roles_.grants_of(job.role_arn)) {
    // What a role denies stays denied.
    if (!role_counts) grant.push_back(access::Policy::nothing());
    all.push_back(std::move(grant));
  }
  return all;
}

std::optional<http::Principal> JobAccess::principal_of(const http::SessionClaims& claims) const {
  const std::optional<Known> job = known(claims);
  if (!job) return std::nullopt;
  const std::string_view role = role_name(job->role_arn);
  http::Principal principal;
  principal.account = account_;
  principal.arn = fmt::format("arn:aws:sts::{}:assumed-role/{}/{}", account_,
                              role.empty() ? "none" : role, claims.subject);
  principal.user_id = fmt::format("AROA:{}", claims.subject);
  std::vector<access::Authority::Grant> grants = grants_of(*job);
  principal.creator = creator_of_next(job->created_by, job->role_arn);
  if (principal.creator.empty()) grants.push_back({makes_no_jobs()});
  principal.authority = access::Authority{std::move(grants)};
  return principal;
}

}  // namespace atelier::jobs
