// Who the holder of a job's key is, and what it may do now: the job's own paths (job_policy.h) as
// far as the job's creator may go there, and what its role grants while the creator may pass it on
// (iam:PassRole). Nothing once the job has ended, or when its creator is unknown. A creator who has
// lost a right has lost it for the jobs that run, too; conditions of the creator's policies on
// aws:PrincipalArn are about the creator, and those of a role's about the role.
//
// The creator of a job that a person made is that person's ARN. Of one that a job made it is that
// of the person at the root and, on a line each, the roles that were passed on since: a job makes
// others by the rights of its role alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "http/session_keys.h"
#include "jobs/roles.h"
#include "jobs/service.h"

namespace atelier::jobs {

// The ARN of the person at the root.
std::string root_of(const std::string& created_by);

class JobAccess {
 public:
  // The grants of a principal that is no job, by its ARN; empty when it is not known (any more).
  using GrantsOf = std::function<std::vector<access::Authority::Grant>(const std::string& arn)>;
  // `service` and `roles` must outlive it.
  JobAccess(Service& service, const Roles& roles, GrantsOf creators, std::string account)
      : service_(service),
        roles_(roles),
        creators_(std::move(creators)),
        account_(std::move(account)) {}

  // Nothing when the job has ended, is not there, or is another one of that name. From any thread;
  // asked for every request of a job, so that an unchanged job costs no look into the store.
  [[nodiscard]] std::optional<http::Principal> principal_of(
      const http::SessionClaims& claims) const;

 private:
  struct Known {
    std::int64_t generation = 0;
    std::uint64_t changes = 0;  // of the service when the job was last seen to run
    std::string created_by;
    std::string role_arn;
    access::Policy own;
  };
  [[nodiscard]] std::optional<Known> known(const http::SessionClaims& claims) const;
  [[nodiscard]] std::vector<access::Authority::Grant> grants_of(const Known& job) const;

  Service& service_;
  const Roles& roles_;
  GrantsOf creators_;
  std::string account_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Known, std::less<>> known_;  // of jobs that run
};

}  // namespace atelier::jobs
