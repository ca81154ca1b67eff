#include "agent/network_slot.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <optional>

namespace atelier::agent {
namespace {

// What ModelTrainer starts: its own scripts, of the channel that it adds.
bool has_port_built_in(const AgentSpec& job) {
  const auto named = [](const std::vector<std::string>& words) {
    return std::ranges::any_of(words, [](const std::string& word) {
      return word.find("/opt/ml/input/data/sm_drivers/") != std::string::npos;
    });
  };
  return job.instances.size() > 1 &&
         (named(job.container_entrypoint) || named(job.container_arguments));
}

// Nothing while another job has it.
Result<std::optional<NetworkSlot>> take(const std::filesystem::path& folder, int number) {
  Result<UniqueFd> lock = lock_file(folder / std::to_string(number));
  if (lock) return std::optional<NetworkSlot>{NetworkSlot{number, *std::move(lock)}};
  if (lock.error().code == Code::kFailedPrecondition) return std::optional<NetworkSlot>{};
  return lock.error();
}

Result<NetworkSlot> wait_for_first(const std::filesystem::path& folder, const StopRequest& stop,
                                   JobLog& log) {
  for (bool said = false; !stop.any(); said = true) {
    if (auto slot = TRY(take(folder, 0))) return *std::move(slot);
    if (!said) {
      log.note(
          fmt::format("[atelier] waits for the end of another job: the driver of the "
                      "SageMaker SDK v3 has port {} built in, and both use the host's "
                      "network (with EnableNetworkIsolation each has its own)",
                      master_port(0)));
      log.flush();
    }
    pollfd change{stop.fd(), POLLIN, 0};
    if (poll(&change, 1, 200) > 0) stop.clear();
  }
  return Error{Code::kCancelled, "stopped before the program began"};
}

}  // namespace

Result<NetworkSlot> take_network_slot(const std::filesystem::path& jobs_folder,
                                      const AgentSpec& job, const StopRequest& stop, JobLog& log) {
  // No job can have that name.
  const std::filesystem::path folder = jobs_folder / ".network";
  TRY(make_folders(folder, 0700));
  if (has_port_built_in(job)) return wait_for_first(folder, stop, log);
  for (int number = 1; number < kNetworkSlots; ++number) {
    if (auto slot = TRY(take(folder, number))) return *std::move(slot);
  }
  return Error{Code::kResourceExhausted,
               fmt::format("{} jobs use the host's network already", kNetworkSlots - 1)};
}

int master_port(int slot) { return 7777 + slot; }

std::string instance_address(int slot, int number) {
  return fmt::format("127.{}.{}.{}", 77 + (number - 1) / 250, slot, 1 + (number - 1) % 250);
}

}  // namespace atelier::agent
