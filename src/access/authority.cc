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

}  // namespace atelier::access
