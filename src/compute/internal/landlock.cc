#include "compute/internal/landlock.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace atelier::compute::internal {
namespace {

// Of <linux/landlock.h>, whose older versions lack the last member.
struct RulesetAttributes {
  std::uint64_t handled_access_fs;
  std::uint64_t handled_access_net;
  std::uint64_t scoped;
};
constexpr std::uint64_t kScopeAbstractUnixSocket = 1;
constexpr std::uint64_t kScopeSignal = 2;
constexpr long kCreateRuleset = 444;
constexpr long kRestrictSelf = 446;
constexpr unsigned kVersionFlag = 1;
constexpr long kFirstWithScopes = 6;

}  // namespace

UniqueFd make_scope() {
  if (syscall(kCreateRuleset, nullptr, 0, kVersionFlag) < kFirstWithScopes) return {};
  const RulesetAttributes attributes{0, 0, kScopeAbstractUnixSocket | kScopeSignal};
  return UniqueFd{static_cast<int>(syscall(kCreateRuleset, &attributes, sizeof attributes, 0U))};
}

bool enter_scope(int scope_fd) {
  // Root may do it as it is; for others the kernel asks that nothing they run gains rights.
  if (geteuid() != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  return syscall(kRestrictSelf, scope_fd, 0U) == 0;
}

}  // namespace atelier::compute::internal
