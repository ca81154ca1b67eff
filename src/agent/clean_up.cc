#include "agent/clean_up.h"

#include <unistd.h>

#include <algorithm>

#include "agent/attempt_clock.h"
#include "agent/checkpoints.h"
#include "agent/instances.h"
#include "base/file.h"
#include "base/own_folder.h"
#include "compute/sandbox.h"

namespace atelier::agent {
namespace fs = std::filesystem;
namespace {

// The job is over: the user's data in S3 is the copy that counts. What could not be uploaded stays
// where someone can fetch it. "tmp" goes last: while it is there, the cleaning is not done
// (needs_cleaning()).
Result<void> clean_up_instance(const fs::path& folder, const Outcome& outcome) {
  for (const char* file : {"model.tar.gz", "output.tar.gz"}) unlink((folder / file).c_str());
  AttemptClock::remove(folder);
  TRY(remove_checkpoints(folder, outcome.delivered));
  if (outcome.delivered) {
    TRY(remove_tree(folder / "ml"));
  } else {
    const Result<UniqueFd> ml = open_own_folder(folder / "ml");
    for (const char* name : {"input", "code"}) {
      if (ml) TRY(remove_tree_at(ml->get(), name));
    }
  }
  return remove_tree(folder / "tmp");
}

}  // namespace

// Of all instances, the leader last: it is the one that is looked at.
Result<void> clean_up(const fs::path& folder, const Outcome& outcome) {
  std::vector<std::string> hosts = instance_hosts(folder);
  std::ranges::reverse(hosts);
  for (const std::string& host : hosts) {
    const fs::path instance = instance_folder(folder, host);
    compute::remove_leavings(sandbox_name(folder.filename().string(), host), instance / "ml");
    TRY(clean_up_instance(instance, outcome));
  }
  return {};
}

}  // namespace atelier::agent
