#include "cli/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace atelier::cli {
namespace {

// Databases, agents' journals, files that are written, and the files that keys are read from.
constexpr std::uint64_t kReserve = 256;
constexpr std::uint64_t kMostConnections = 2048;
// A socket and the file that goes through it; with TLS the two ends of its relay besides.
constexpr std::uint64_t kOfPlain = 2;
constexpr std::uint64_t kOfTls = 4;
// Programs of jobs inherit the limit, and old ones close every number up to it before they start
// another: no more than the server can use.
constexpr std::uint64_t kNeeded = 16'384;
static_assert(kNeeded >= kReserve + kMostConnections * (kOfPlain + kOfTls));

}  // namespace

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kReserve;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, kNeeded);
  if (limit.rlim_cur >= wanted) return limit.rlim_cur;
  const rlimit raised{wanted, limit.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? wanted : limit.rlim_cur;
}

std::size_t connections_for(std::uint64_t limit, bool tls) {
  const std::uint64_t left = limit > kReserve ? limit - kReserve : 0;
  return std::clamp<std::uint64_t>(left / (tls ? kOfPlain + kOfTls : kOfPlain), 8,
                                   kMostConnections);
}

}  // namespace atelier::cli
