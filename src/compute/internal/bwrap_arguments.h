// The command line of bubblewrap for a sandbox, as a function of what is asked for and of the host.
#pragma once

#include <string>
#include <vector>

#include "compute/sandbox.h"

namespace atelier::compute::internal {

// A small file that bubblewrap writes into the sandbox, read from descriptor `fd`.
struct DataFile {
  int fd = -1;
  std::string path;
};

struct BwrapPlan {
  std::string bwrap;  // its path
  Identity identity;
  bool root = false;  // bubblewrap runs as root, and sandbox_entry gives it up
  int seccomp_fd = -1;
  int entry_fd = -1;      // the program sandbox_entry
  int variables_fd = -1;  // what it hands on
  int status_fd = -1;
  std::vector<DataFile> files;
  std::uint64_t shm_bytes = 0;
};

std::vector<std::string> bwrap_arguments(const SandboxSpec& spec, const BwrapPlan& plan);

}  // namespace atelier::compute::internal
