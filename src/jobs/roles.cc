#include "jobs/roles.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/strict_json.h"

namespace atelier::jobs {
namespace {

constexpr std::size_t kMaxFile = std::size_t{1} << 20;
constexpr std::size_t kMaxRoles = 1000;
constexpr std::string_view kDefault = "default";

Error wrong(std::string_view what) { return Error{Code::kInvalidArgument, std::string{what}}; }

// The bytes of a file that nobody but its owner can have written. What is checked is what is read.
Result<std::string> read_unshared(const std::filesystem::path& path) {
  const UniqueFd fd = TRY(open_file(path, O_RDONLY | O_NONBLOCK));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return error_from_errno(path.string(), errno);
  if (!S_ISREG(info.st_mode)) return wrong(fmt::format("'{}' is no plain file", path.string()));
  if ((info.st_mode & 022) != 0) {
    return Error{Code::kPermissionDenied,
                 fmt::format("'{}' says what jobs may do, and others may change it (mode {:04o}); "
                             "run: chmod go-w {}",
                             path.string(), info.st_mode & 07777, path.string())};
  }
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return Error{Code::kPermissionDenied,
                 fmt::format("'{}' says what jobs may do, and belongs to user {}; it has to be of "
                             "user {} or of root",
                             path.string(), info.st_uid, geteuid())};
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size > kMaxFile)
    return wrong(fmt::format("'{}' is larger than {} bytes", path.string(), kMaxFile));
  std::string bytes(size, '\0');
  const ssize_t got = pread(fd.get(), bytes.data(), bytes.size(), 0);
  if (got != info.st_size) return error_from_errno(fmt::format("read '{}'", path.string()), EIO);
  return bytes;
}

}  // namespace

Result<RoleTable> parse_roles(std::string_view text) {
  if (text.size() > kMaxFile) return wrong(fmt::format("larger than {} bytes", kMaxFile));
  const json::value value = TRY(parse_strict_json(text));
  const json::object* roles = find_object(value, "roles");
  if (roles == nullptr || value.get_object().size() != 1) {
    return wrong("must be an object with 'roles' alone");
  }
  if (roles->size() > kMaxRoles) return wrong(fmt::format("more than {} roles", kMaxRoles));
  RoleTable table;
  for (const auto& [name, policy] : *roles) {
    Result<access::Policy> parsed = access::Policy::parse(json::serialize(policy));
    if (!parsed) return parsed.error().within(fmt::format("role '{}'", std::string_view{name}));
    table.emplace(std::string{name}, *std::move(parsed));
  }
  return table;
}

Result<std::unique_ptr<Roles>> Roles::open(std::filesystem::path path, std::string account) {
  std::unique_ptr<Roles> roles{new Roles{std::move(path), std::move(account)}};
  TRY(roles->look());
  return roles;
}

Result<void> Roles::look() const {
  if (!watched_.changed()) return {};
  const Result<std::string> text = read_unshared(watched_.path());
  if (!text && text.error().code == Code::kNotFound) {
    table_.clear();
    watched_.taken();
    return {};
  }
  if (!text) return text.error();
  Result<RoleTable> table = parse_roles(*text);
  if (!table) return table.error().within(watched_.path().string());
  table_ = *std::move(table);
  watched_.taken();
  return {};
}

std::vector<access::Authority::Grant> Roles::grants_of(std::string_view role_arn) const {
  const std::lock_guard lock{mutex_};
  if (const Result<void> looked = look(); looked) {
    complaint_.clear();
  } else if (complaint_ != looked.error().message) {
    complaint_ = looked.error().message;
    log::error("roles stay as they were: " + complaint_);
  }
  std::vector<access::Authority::Grant> grants;
  const auto add = [&](std::string_view name) {
    const auto found = table_.find(name);
    if (found != table_.end()) grants.push_back({found->second.as_of(role_arn)});
  };
  if (role_arn.starts_with(prefix_)) add(role_arn.substr(prefix_.size()));
  // A role of that name would give it twice.
  if (role_arn != prefix_ + std::string{kDefault}) add(kDefault);
  return grants;
}

std::string_view role_name(std::string_view arn) {
  if (arn.find(":role/") == std::string_view::npos) return {};
  return arn.substr(arn.rfind('/') + 1);
}

}  // namespace atelier::jobs
