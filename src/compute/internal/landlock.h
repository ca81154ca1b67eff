// Abstract Unix sockets and signals cut off at a sandbox: the one thing that neither mounts nor PID
// namespaces divide. Abstract sockets belong to the network namespace, which a job without network
// isolation shares with the host. Source: landlock(7), "IPC scoping", Linux 6.12.
#pragma once

#include "base/file.h"

namespace atelier::compute::internal {

// A rule set for the child of a fork; empty where the kernel cannot do it.
UniqueFd make_scope();

// Puts the calling process and its children behind it. Only system calls: for after a fork. False:
// errno says why.
bool enter_scope(int scope_fd);

}  // namespace atelier::compute::internal
