#include "access/authority.h"

#include <algorithm>

namespace atelier::access {

Decision Authority::decide(const Request& request) const {
  Decision decision = Decision::kImplicitDeny;
  for (const Grant& grant : grants_) {
    bool all = !grant.empty();
    for (const Policy& policy : grant) {
      const Decision one = policy.decide(request);
      if (one == Decision::kExplicitDeny) return one;
      all = all && one == Decision::kAllowed;
    }
    if (all) decision = Decision::kAllowed;
  }
  return decision;
}

bool Authority::could_allow(std::string_view action) const {
  return std::ranges::any_of(grants_, [&](const Grant& grant) {
    return !grant.empty() && std::ranges::all_of(grant, [&](const Policy& policy) {
      return policy.could_allow(action);
    });
  });
}

}  // namespace atelier::access
