#include "jobs/roles.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/strict_json.h"

namespace atelier::jobs {
namespace {

constexpr std::size_t kMaxFile = std::size_t{1} << 20;
constexpr std::size_t kMaxRoles = 1000;
constexpr std::string_view kDefault = "default";

Error wrong(std::string_view what) { return Error{Code::kInvalidArgument, std::string{what}}; }

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
  const Result<std::string> text = read_file(watched_.path(), kMaxFile);
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
