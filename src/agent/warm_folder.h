// What of a job's instance stays for the next job of its warm pool, on this host:
//
//   POOL/algo-1/cache     /opt/ml/sagemaker/warmpoolcache, SageMaker's folder for that
//   POOL/algo-1/.python   where pip of the job installs, so that the next one finds its packages
//
// Programs write to both, so nothing in there is read, followed or given to anybody by an agent:
// jobs of one pool are one user of the host (identity_name()). Inside they are mounts below
// /opt/warm, where no program can put a link in the way of the next sandbox; the path below /opt/ml
// is a link.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agent/ml_tree.h"
#include "agent/spec.h"
#include "base/result.h"
#include "compute/sandbox.h"

namespace atelier::agent {

// Each does nothing, or gives nothing, for a job without a warm pool.
Result<void> prepare_warm_folder(MlTree& tree, const AgentSpec& spec);
std::vector<compute::BindMount> warm_mounts(const AgentSpec& spec);
// Of the host, for whoever counts what the instance holds.
std::vector<std::filesystem::path> warm_folders(const AgentSpec& spec);

// Below which pip of the job installs, in .python.
std::string packages_base(const AgentSpec& spec);

}  // namespace atelier::agent
