// The tables of a job store, as the steps that lead from one version of them to the next.
#pragma once

#include <string>
#include <vector>

namespace atelier::jobs::internal {

// For sqlite::migrate(). A step that has been released never changes.
const std::vector<std::string>& store_schema();

}  // namespace atelier::jobs::internal
