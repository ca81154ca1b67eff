#include "agent/gpus.h"

#include <fmt/format.h>
#include <poll.h>

#include "compute/gpus.h"

namespace atelier::agent {

Result<Gpus> Gpus::take(const AgentSpec& spec, const StopRequest& stop, JobLog& log) {
  if (spec.gpus == 0) return Gpus{};
  const auto wanted = static_cast<std::size_t>(spec.gpus);
  TRY(make_folders(spec.gpu_folder, 0700));
  for (bool said = false; !stop.any(); said = true) {
    const compute::GpuDevices there = compute::find_gpus(spec.device_folder);
    if (there.numbers.size() < wanted) {
      return Error{Code::kResourceExhausted,
                   fmt::format("the job was granted {} GPUs, and {} has {} now", wanted,
                               spec.device_folder, there.numbers.size())};
    }
    Gpus taken;
    for (const int number : there.numbers) {
      if (taken.numbers_.size() == wanted) break;
      Result<UniqueFd> lock =
          lock_file(std::filesystem::path{spec.gpu_folder} / std::to_string(number));
      if (!lock && lock.error().code == Code::kFailedPrecondition) continue;
      if (!lock) return lock.error();
      taken.numbers_.push_back(number);
      taken.locks_.push_back(*std::move(lock));
    }
    if (taken.numbers_.size() == wanted) return taken;
    if (!said) log.note("[atelier] waits for a GPU that an ended job still has");
    // Nothing stays locked here, so that two that wait do not wait for each other.
    taken = {};
    pollfd change{stop.fd(), POLLIN, 0};
    if (poll(&change, 1, 200) > 0) stop.clear();
  }
  return Error{Code::kCancelled, "stopped before the program began"};
}

}  // namespace atelier::agent
