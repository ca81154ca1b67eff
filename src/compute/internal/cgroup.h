// Limits on one program and everything it starts: a control group of version 2, else of version 1,
// else limits of each process (rlimits and CPU affinity).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace atelier::compute::internal {

struct Limits {
  double cpus = 0;  // 0: no limit
  std::uint64_t memory_bytes = 0;
};

// Where the kernel's control groups are: by default the real ones.
struct CgroupPlaces {
  std::filesystem::path mountinfo = "/proc/self/mountinfo";
  std::filesystem::path own = "/proc/self/cgroup";
};

// Removes the empty groups of that name which an agent that was killed could not remove, and those
// in which its bubblewrap never got as far as to start: processes with `ml_folder` as a word of
// their command line are killed.
void remove_left_cgroups(std::string_view name, const std::filesystem::path& ml_folder = {},
                         const CgroupPlaces& places = {});

// The names of the empty groups that are older than `age`: a group is empty, too, for the moment
// between its making and its program's start.
std::vector<std::string> names_of_left_cgroups(std::chrono::seconds age = std::chrono::seconds{60},
                                               const CgroupPlaces& places = {});

class Cgroup {
 public:
  // Never fails for want of control groups: what cannot be had is left to the process limits.
  static Cgroup create(std::string_view name, const Limits& limits,
                       const CgroupPlaces& places = {});
  Cgroup(Cgroup&& other) noexcept = default;
  Cgroup& operator=(Cgroup&&) = delete;
  ~Cgroup();  // kills what is left inside, and removes the groups

  // A process of one thread that writes "0" to each of these is in.
  [[nodiscard]] std::vector<int> join_fds() const;
  // The folder of a version 2 group, for CLONE_INTO_CGROUP; -1 without one.
  [[nodiscard]] int clone_fd() const { return clone_fd_.get(); }
  // What the groups do not limit, and each process has to be limited in itself.
  [[nodiscard]] const Limits& per_process() const { return per_process_; }
  [[nodiscard]] const std::string& words() const { return words_; }
  // How often the kernel killed a process inside for want of memory.
  [[nodiscard]] std::uint64_t out_of_memory_kills() const;

 private:
  Cgroup() = default;
  bool create_v2(std::string_view name, const Limits& limits, const std::filesystem::path& parent);
  bool create_v1(std::string_view name, const Limits& limits, const std::string& controller,
                 const std::filesystem::path& parent);

  std::vector<std::filesystem::path> folders_;
  std::vector<UniqueFd> join_;
  UniqueFd clone_fd_;
  std::filesystem::path memory_folder_;
  Limits per_process_;
  std::string words_;
};

}  // namespace atelier::compute::internal
