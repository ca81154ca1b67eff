#include "agent/network_slot.h"

#include <fmt/format.h>

namespace atelier::agent {

Result<NetworkSlot> take_network_slot(const std::filesystem::path& jobs_folder) {
  // No job can have that name.
  const std::filesystem::path folder = jobs_folder / ".network";
  TRY(make_folders(folder, 0700));
  for (int number = 0; number < kNetworkSlots; ++number) {
    Result<UniqueFd> lock = lock_file(folder / std::to_string(number));
    if (lock) return NetworkSlot{number, *std::move(lock)};
    if (lock.error().code != Code::kFailedPrecondition) return lock.error();
  }
  return Error{Code::kResourceExhausted,
               fmt::format("{} jobs use the host's network already", kNetworkSlots)};
}

int master_port(int slot) { return 7777 + slot; }

std::string instance_address(int slot, int number) {
  return fmt::format("127.{}.{}.{}", 77 + (number - 1) / 250, slot, 1 + (number - 1) % 250);
}

}  // namespace atelier::agent
