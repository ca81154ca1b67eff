// From the body of CreateTrainingJob to what an agent is told: a pure function of the request and
// of what this machine offers. What cannot be done is refused by name, never silently left out
// (request_rules.h has what needs no machine to say).
#pragma once

#include <boost/json/fwd.hpp>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spec.h"
#include "base/result.h"
#include "base/time.h"
#include "compute/instance_types.h"
#include "compute/runtimes.h"
#include "jobs/training_job.h"

namespace atelier::jobs {

struct PlanContext {
  std::string region;
  std::string account;
  const compute::InstanceTable& instances;
  const compute::RuntimeTable& runtimes;
  compute::HostCapacity host;
};

struct Plan {
  agent::AgentSpec spec;  // without the S3 endpoint, which is known once the server listens
  compute::Allocation allocation;  // of all instances together
  Terms terms;
  std::chrono::seconds keep_alive{0};  // KeepAlivePeriodInSeconds
  std::vector<std::string> warnings;
  std::string model_uri;
};

// `created` names the log stream. kInvalidArgument, kUnimplemented or kResourceExhausted say which
// member asks for what cannot be.
Result<Plan> plan_job(std::string_view request_json, const PlanContext& context, Time created);

// KeepAlivePeriodInSeconds; 0 where it is not given.
std::chrono::seconds keep_alive_of(const boost::json::value& request);

// Gives the instances their parts of what the job was granted, should the table of instance types
// say something else by now.
void grant(Plan& plan, double vcpus, double memory_gib, int gpus);

}  // namespace atelier::jobs
