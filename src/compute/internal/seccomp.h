// The system calls that a sandboxed program does not get.
#pragma once

#include <string>

namespace atelier::compute::internal {

// A classic BPF program for bubblewrap's --seccomp: an array of sock_filter as bytes. Refused are
// new namespaces (and so all the kernel code that they would open to an unprivileged user), mounts,
// kernel keyrings (which no namespace divides), io_uring, bpf, perf events, modules and the calls
// of other ABIs; everything else is allowed.
std::string seccomp_filter();

}  // namespace atelier::compute::internal
