// Whether jobs of this host can have a network of their own, for tests that need one or that would
// otherwise meet the warning of jobs that have to share the host's.
#pragma once

#include <string>

#include "base/result.h"
#include "compute/outward_network.h"

namespace atelier::agent {

// Why not; empty: they can.
inline const std::string& no_own_network() {
  static const std::string why = [] {
    Result<compute::OutwardNetwork> probe = compute::OutwardNetwork::begin({.identity = "probe"});
    const Result<compute::SharedNetwork> ready = probe ? probe->ready() : probe.error();
    return ready ? std::string{}
                 : "this host gives jobs no network of their own: " + ready.error().message;
  }();
  return why;
}

}  // namespace atelier::agent
