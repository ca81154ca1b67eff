// Where the shared libraries of a program lie, for a sandbox that shows only the system's folders.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace atelier::compute {

// The folders outside of /usr and /lib that hold libraries of the program, as the dynamic linker
// itself finds them: a torch that pip installed, what that torch brings along, and where links
// lead. LD_LIBRARY_PATH of this process is left out, since a job does not see it. kNotFound names a
// library that the linker does not find.
Result<std::vector<std::string>> library_folders(const std::filesystem::path& program);

}  // namespace atelier::compute
