// What keeps jobs apart that share the host's network: each has loopback addresses and a port of
// its own, by a number that no other running job of this server has.
#pragma once

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace atelier::agent {

struct NetworkSlot {
  int number = 0;
  UniqueFd lock;  // the number is this job's as long as it is open
};

// The smallest number that is free; kResourceExhausted when all are taken.
Result<NetworkSlot> take_network_slot(const std::filesystem::path& jobs_folder);

inline constexpr int kNetworkSlots = 250;
// MASTER_PORT of the toolkit, for the first; the others follow.
int master_port(int slot);
// Of instance `number` (from 1): all of 127.0.0.0/8 is loopback.
std::string instance_address(int slot, int number);

}  // namespace atelier::agent
