// ranks.py, which starts the processes of a distributed script where mpirun is not there, as it is
// shown to a sandbox.
#pragma once

#include <string_view>

namespace atelier::agent {

inline constexpr std::string_view kRanksPath = "/opt/atelier/ranks.py";
std::string_view ranks_file();

}  // namespace atelier::agent
