// What keeps jobs apart that share the host's network: each has loopback addresses and a port of
// its own, by a number that no other running job of this server has.
#pragma once

#include <filesystem>
#include <string>

#include "agent/job_log.h"
#include "agent/spec.h"
#include "agent/supervisor.h"
#include "base/file.h"
#include "base/result.h"

namespace atelier::agent {

struct NetworkSlot {
  int number = 0;
  UniqueFd lock;  // the number is this job's as long as it is open
};

// The smallest number from 1 on that is free; kResourceExhausted when all are taken. A job whose
// launcher has the port of number 0 built in, and several instances, waits for that one: with
// another such job at the same time, their processes would meet. kCancelled when `stop` ends that.
Result<NetworkSlot> take_network_slot(const std::filesystem::path& jobs_folder,
                                      const AgentSpec& job, const StopRequest& stop, JobLog& log);

inline constexpr int kNetworkSlots = 250;
// The toolkit's port for number 0, which the driver of the SageMaker SDK v3 has too; the others
// follow.
int master_port(int slot);
// Of instance `number` (from 1): all of 127.0.0.0/8 is loopback.
std::string instance_address(int slot, int number);

}  // namespace atelier::agent
