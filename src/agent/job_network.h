// The network that a job's programs run in: one of the job's own that all of its instances share,
// or the host's where that has to be. The leader's agent makes it, the others join.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "agent/job_log.h"
#include "agent/network_slot.h"
#include "agent/spec.h"
#include "agent/supervisor.h"
#include "base/result.h"
#include "compute/network.h"
#include "compute/outward_network.h"

namespace atelier::agent {

// Of one thread, which is the one that starts the programs: the network ends with it.
class JobNetwork {
 public:
  // Begins what takes a while, for meet() to wait for.
  void begin(const AgentSpec& job);
  // Returns once programs can use it. Tells `job` what the other instances have to know.
  Result<void> meet(const std::filesystem::path& jobs_folder, AgentSpec& job,
                    const StopRequest& stop, JobLog& log);
  // Null: bubblewrap makes one of loopback alone, or it is the host's.
  [[nodiscard]] const compute::SharedNetwork* shared() const;
  // Why the job shares the host's network though it should not; empty: it does not.
  [[nodiscard]] const std::string& warning() const { return warning_; }
  // Readable once there is no way outwards any more; -1 where that cannot be.
  [[nodiscard]] int end_fd() const;
  [[nodiscard]] bool ended() const;

 private:
  Result<void> meet_on_host(const std::filesystem::path& jobs_folder, AgentSpec& job,
                            const StopRequest& stop, JobLog& log);

  std::optional<compute::OutwardNetwork> outward_;
  std::optional<compute::SharedNetwork> shared_;
  std::optional<NetworkSlot> slot_;
  std::string warning_;
};

}  // namespace atelier::agent
