#include "agent/infra_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "base/file.h"

namespace atelier::agent {
namespace fs = std::filesystem;
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::size_t kTrialBytes = std::size_t{16} << 20;
constexpr int kSandboxMilliseconds = 60000;
constexpr double kGib = 1 << 30;

double milliseconds_since(Steady::time_point begin) {
  return std::chrono::duration<double, std::milli>(Steady::now() - begin).count();
}

Result<std::string> check_sandbox(compute::SandboxSpec spec) {
  const auto begin = Steady::now();
  spec.argv = {"/bin/true"};
  spec.working_folder = "/opt/ml";
  compute::Sandbox sandbox = TRY(compute::Sandbox::start(spec));
  pollfd waiting{sandbox.exit_fd(), POLLIN, 0};
  if (poll(&waiting, 1, kSandboxMilliseconds) <= 0) {
    return Error{Code::kUnavailable, "a program that does nothing did not end within a minute"};
  }
  const compute::SandboxExit exit = TRY(sandbox.wait());
  if (exit.code != 0 || exit.signal != 0) {
    return Error{Code::kUnavailable,
                 fmt::format("a program that does nothing ended with exit code {} and signal {}",
                             exit.code, exit.signal)};
  }
  return fmt::format("sandbox starts in {:.0f} ms", milliseconds_since(begin));
}

Result<std::string> check_disk(const fs::path& folder, int volume_gib) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) return error_from_errno("statvfs", errno);
  const double free =
      static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) / kGib;
  if (free < volume_gib) {
    return Error{
        Code::kResourceExhausted,
        fmt::format("the disk has {:.1f} GiB free, and VolumeSizeInGB is {}", free, volume_gib)};
  }
  std::string bytes(kTrialBytes, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>((i * 2654435761U) >> 13);
  const fs::path path = folder / "infra-check";
  const UniqueFd fd = TRY(open_file(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
  unlink(path.c_str());
  const auto begin = Steady::now();
  TRY(write_all(fd.get(), bytes));
  if (fdatasync(fd.get()) != 0) return error_from_errno("fdatasync", errno);
  const double took = milliseconds_since(begin);
  // From the disk, not from memory, as far as the kernel lets go of it.
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  std::string again(bytes.size(), '\0');
  for (std::size_t done = 0; done < again.size();) {
    const ssize_t got =
        pread(fd.get(), again.data() + done, again.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return error_from_errno("read what was written", got < 0 ? errno : EIO);
    done += static_cast<std::size_t>(got);
  }
  if (again != bytes) return Error{Code::kDataLoss, "the disk does not give back what was written"};
  return fmt::format("disk writes {:.0f} MB/s, {:.0f} GiB free",
                     static_cast<double>(kTrialBytes) / 1e3 / std::max(took, 0.1), free);
}

// MemAvailable, in GiB; 0 where it is not known.
double free_memory() {
  const Result<std::string> text = read_file("/proc/meminfo", 65536);
  const std::size_t at = text ? text->find("MemAvailable:") : std::string::npos;
  if (at == std::string::npos) return 0;
  const std::size_t digits = text->find_first_of("0123456789", at);
  double kib = 0;
  std::from_chars(text->data() + digits, text->data() + text->size(), kib);
  return kib * 1024 / kGib;
}

}  // namespace

Result<std::string> check_infrastructure(const AgentSpec& spec, const fs::path& job_folder,
                                         compute::SandboxSpec sandbox) {
  Result<std::string> confined = check_sandbox(std::move(sandbox));
  if (!confined) return confined.error().within("infrastructure check: the sandbox");
  Result<std::string> disk = check_disk(job_folder, spec.volume_gib);
  if (!disk) return disk.error().within("infrastructure check: the disk");
  const double memory = free_memory();
  return fmt::format(
      "{}; {}; {:.1f} GiB of memory free{}", *confined, *disk, memory,
      memory < spec.memory_gib
          ? fmt::format(", less than the {:.3g} GiB that the job may use", spec.memory_gib)
          : "");
}

}  // namespace atelier::agent
