#include "compute/gpus.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace atelier::compute {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "nvidia";
constexpr const char* kControl = "nvidiactl";
// What NVIDIA's container runtime gives to every container with a GPU.
constexpr const char* kOthers[] = {"nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset",
                                   "nvidia-caps"};

std::optional<int> number_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int number = 0;
  const char* const last = name.data() + name.size();
  const auto [end, failure] = std::from_chars(name.data() + kPrefix.size(), last, number);
  if (failure != std::errc{} || end != last || number < 0) return std::nullopt;
  return number;
}

}  // namespace

GpuDevices find_gpus(const fs::path& devices) {
  GpuDevices found;
  std::error_code failure;
  if (!fs::exists(devices / kControl, failure)) return found;
  for (const auto& entry : fs::directory_iterator(devices, failure)) {
    if (const auto number = number_of(entry.path().filename().string())) {
      found.numbers.push_back(*number);
    }
  }
  std::ranges::sort(found.numbers);
  found.shared.emplace_back(kControl);
  for (const char* name : kOthers) {
    if (fs::exists(devices / name, failure)) found.shared.emplace_back(name);
  }
  return found;
}

}  // namespace atelier::compute
