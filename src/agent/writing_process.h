// The processes that write a file, and how they ended. A file without a writer is whole when its
// writer closed it, and may be half of one when its writer was killed: the kernel closes what a
// dead process had open.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/sync_ledger.h"
#include "base/file.h"

namespace atelier::agent {

// A file as the kernel names it.
using FileId = std::pair<dev_t, ino_t>;

// Who has these files open, or mapped, for writing: of the processes of the users `owners`, by one
// pass over /proc. A file whose writer cannot be found (another user's, or one that has just closed
// it) is left out.
std::map<FileId, Writers> find_writers(const std::vector<FileId>& files,
                                       const std::vector<uid_t>& owners);

// A process by its number, and the user whose it is.
struct ProcessId {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  bool as_user = false;  // we may not look into it, but its user may
};

// One process, held by a descriptor so that its number may be given to another one.
class WritingProcess {
 public:
  WritingProcess(ProcessId id, std::uint64_t start, UniqueFd pidfd)
      : id_(id), start_(start), pidfd_(std::move(pidfd)) {}
  // How a process ended is known of one that its parent has not waited for yet, and of every one
  // from Linux 6.15 on; else it is kUnknown.
  [[nodiscard]] Fate fate() const;

 private:
  ProcessId id_;
  std::uint64_t start_;  // in clock ticks since boot
  UniqueFd pidfd_;
};

}  // namespace atelier::agent
