// Where bubblewrap mounts below folders that the program writes to.
#pragma once

#include "base/result.h"
#include "compute/sandbox.h"

namespace atelier::compute::internal {

// Makes the mount points of `spec` that lie in its writable folders (a LocalPath below /tmp, say),
// and refuses those of which a part has become a link: bubblewrap, as root, would follow it out of
// the folder and make folders anywhere on the host. Of no use while a program of the job runs.
Result<void> make_mount_points(const SandboxSpec& spec, const Identity& owner);

}  // namespace atelier::compute::internal
