// What of a job's spec becomes a program in a sandbox: its environment, mounts and command line.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "agent/script_mode.h"
#include "agent/spec.h"
#include "compute/sandbox.h"

namespace atelier::agent {

// The variables that the platform sets (contract 2.1), the user's own over them.
std::map<std::string, std::string> platform_environment(const AgentSpec& spec);

// A sandbox for the job without argv: name, /opt/ml, a /tmp on the job's disk, the runtime's
// folders, limits, network.
compute::SandboxSpec sandbox_spec(const AgentSpec& spec, const std::filesystem::path& job_folder);

// The command line of a program that is not a script of script mode.
std::vector<std::string> program_argv(const AgentSpec& spec);

// The source of packages as pip of the job sees it.
compute::PipSetup job_pip_setup(const AgentSpec& spec);

// CPUs that the job may use: the count that its programs are told.
int job_cpus(const AgentSpec& spec);

// Where what the program writes lands on the host's disk.
std::vector<std::filesystem::path> written_places(const AgentSpec& spec,
                                                  const std::filesystem::path& job_folder);

// What the toolkit's rules (agent/script_mode.h) are given to plan a script's run with.
ScriptInput script_input(const AgentSpec& spec);

}  // namespace atelier::agent
