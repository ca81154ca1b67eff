// What of a job's folder goes when an attempt is over.
#pragma once

#include <filesystem>

#include "agent/outcome.h"
#include "base/result.h"

namespace atelier::agent {

// Of all instances. May be repeated: until it is through, needs_cleaning() says so.
Result<void> clean_up(const std::filesystem::path& job_folder, const Outcome& outcome);

}  // namespace atelier::agent
