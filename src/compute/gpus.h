// The NVIDIA GPUs of the host, by the device files through which programs use them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace atelier::compute {

struct GpuDevices {
  std::vector<int> numbers;         // of nvidia0, nvidia1, ...; ascending
  std::vector<std::string> shared;  // files and folders that a program needs besides its GPU's own
};
// None where the driver's own file, nvidiactl, is not there: no program could use them then.
GpuDevices find_gpus(const std::filesystem::path& devices = "/dev");

}  // namespace atelier::compute
