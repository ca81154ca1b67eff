// Any bytes as a log file: every way of reading ends, stays inside the file and agrees with itself.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/log_file.h"
#include "base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;
  static const std::filesystem::path path = "/dev/shm/atelier-log-fuzz-" + std::to_string(getpid());
  {
    UniqueFd fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC).value();
    write_all(fd.get(), std::string_view{reinterpret_cast<const char*>(data), size}).value();
  }
  const auto forward = agent::read_log(path, 0, SIZE_MAX, SIZE_MAX).value();
  const auto backward = agent::read_log_backward(path, UINT64_MAX, SIZE_MAX, SIZE_MAX).value();
  if (forward.events.size() != backward.events.size()) std::abort();
  for (std::size_t i = 0; i < forward.events.size(); ++i) {
    if (forward.events[i].offset != backward.events[i].offset) std::abort();
  }
  if (forward.next_offset > size) std::abort();
  agent::seek_log(path, from_epoch_milliseconds(static_cast<std::int64_t>(size))).value();
  agent::read_log(path, size / 2, 3, 100).value();
  agent::LogWriter::open(path).value();
  unlink(path.c_str());
  return 0;
}
