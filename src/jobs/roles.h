// What an operator grants to roles, and so to the jobs that name them in RoleArn, beside the jobs'
// own paths. The file is JSON: {"roles": {"NAME": {a policy}, "default": {a policy}}}; "default"
// counts for every role. It is read again when it was changed. Without a file no role grants
// anything. Safe from every thread.
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
  static Result<std::unique_ptr<Roles>> open(std::filesystem::path path);

  // Of "arn:aws:iam::000000000000:role/path/NAME", or of an assumed role of that name.
  [[nodiscard]] std::vector<access::Authority::Grant> grants_of(std::string_view role_arn) const;

 private:
  explicit Roles(std::filesystem::path path) : watched_(std::move(path)) {}
  Result<void> look() const;

  mutable std::mutex mutex_;  // guards what follows
  mutable WatchedFile watched_;
  mutable RoleTable table_;
};

// "NAME" of a role's ARN or an assumed role's; empty when it is neither.
std::string_view role_name(std::string_view arn);

}  // namespace atelier::jobs
