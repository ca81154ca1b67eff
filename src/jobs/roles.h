// What an operator grants to roles, and so to the jobs that name them in RoleArn, beside the jobs'
// own paths. The file is JSON: {"roles": {"NAME": {a policy}, "PATH/NAME": {a policy}, "default":
// {a policy}}}; a role is known by all that follows ":role/" in its ARN, byte for byte, and
// "default" counts for every role. It is read again when it was changed. Without a file no role
// grants anything. Safe from every thread.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "access/authority.h"
#include "base/result.h"
#include "base/watched_file.h"

namespace atelier::jobs {

using RoleTable = std::map<std::string, access::Policy, std::less<>>;

// At most 1 MiB and 1,000 roles; an error names the role and the place in its policy.
Result<RoleTable> parse_roles(std::string_view text);

class Roles {
 public:
  // A file that cannot be read now is an error; later, what it said before goes on to count and the
  // log says why.
  static Result<std::unique_ptr<Roles>> open(std::filesystem::path path, std::string account);

  // Of "arn:aws:iam::ACCOUNT:role/PATH/NAME": the string that iam:PassRole is asked for. Conditions
  // on aws:PrincipalArn in its policies are about the role.
  [[nodiscard]] std::vector<access::Authority::Grant> grants_of(std::string_view role_arn) const;

 private:
  Roles(std::filesystem::path path, std::string account)
      : prefix_("arn:aws:iam::" + account + ":role/"), watched_(std::move(path)) {}
  Result<void> look() const;

  const std::string prefix_;  // of the ARNs of this account's roles
  mutable std::mutex mutex_;  // guards what follows
  mutable WatchedFile watched_;
  mutable RoleTable table_;
  mutable std::string complaint_;  // the last one in the log
};

// "NAME" of a role's ARN, without its path, as assumed-role ARNs have it; empty when it is none.
// Two roles may have it in common: nothing is looked up by it.
std::string_view role_name(std::string_view arn);

}  // namespace atelier::jobs
