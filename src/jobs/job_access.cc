#include "jobs/job_access.h"

#include <fmt/format.h>

#include <limits>

#include "base/json.h"
#include "base/log.h"
#include "jobs/job_policy.h"

namespace atelier::jobs {
namespace {

constexpr std::size_t kMaxKnown = 4096;

}  // namespace

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
  std::vector<access::Authority::Grant> creator;
  if (job.created_by.empty()) {
    creator = access::Authority::everything().grants();
  } else if (job.created_by.find(":assumed-role/") != std::string::npos) {
    creator = roles_.grants_of(job.created_by);  // a job that was made by a job
  } else {
    creator = creators_(job.created_by);
  }
  for (access::Authority::Grant& grant : creator) grant.push_back(job.own);
  for (access::Authority::Grant& grant : roles_.grants_of(job.role_arn)) {
    creator.push_back(std::move(grant));
  }
  return creator;
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
  principal.authority = access::Authority{grants_of(*job)};
  return principal;
}

}  // namespace atelier::jobs
