// InfraCheckConfig.EnableInfraCheck: what the job is about to need is tried before its program
// starts, so that a fault of the host shows as one.
#pragma once

#include <filesystem>
#include <string>

#include "agent/spec.h"
#include "base/result.h"
#include "compute/sandbox.h"

namespace atelier::agent {

// Starts a program that does nothing in `sandbox`, writes to the disk of `job_folder` and reads it
// again, and looks at free disk and memory. What was found, in a line; an error says what would
// fail.
Result<std::string> check_infrastructure(const AgentSpec& spec,
                                         const std::filesystem::path& job_folder,
                                         compute::SandboxSpec sandbox);

}  // namespace atelier::agent
