// ResourceConfig as the instances of the job: how many, of which types, and what each gets of this
// host. All of them or none: a job waits until the host has room for the sum.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/spec.h"
#include "base/result.h"
#include "compute/instance_types.h"

namespace atelier::jobs {

// Of a group. More than any host of one's own holds; keeps a mistyped count from filling the disk
// with folders.
inline constexpr std::int64_t kMaxInstances = 200;

struct InstancesPlan {
  std::vector<agent::InstanceSpec> instances;  // algo-1, algo-2, ... in the order of the groups
  compute::Allocation total;                   // what they hold of the host together
  double price_per_hour = 0;                   // of one of them on average, on demand
  double spot_price_per_hour = 0;
};

// `resources` has passed check_request(). kInvalidArgument for a type that the table does not have,
// kResourceExhausted where the host is too small: in strict mode, or for so many.
Result<InstancesPlan> plan_instances(const boost::json::value& resources,
                                     const compute::InstanceTable& table,
                                     const compute::HostCapacity& host);

// What no service model says of ResourceConfig and of the channels' InstanceGroupNames, a sentence
// for each mistake.
std::vector<std::string> instance_mistakes(const boost::json::value& request);

}  // namespace atelier::jobs
