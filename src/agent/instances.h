// The instances of a job as their agents see them: what each one is told, and what the ends of all
// of them make of the job. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/outcome.h"
#include "agent/spec.h"
#include "base/time.h"

namespace atelier::agent {

inline bool leads(const AgentSpec& spec) { return spec.host == kLeader; }

// In the order of their ranks, which is that of their names; of a job with one instance, that one.
std::vector<InstanceSpec> instances_of(const AgentSpec& spec);

// The names of all hosts, sorted.
std::vector<std::string> host_names(const AgentSpec& spec);

// What the agent of `instance` is told: its own host, share, log stream, and the channels of its
// group.
AgentSpec spec_of_instance(const AgentSpec& job, const InstanceSpec& instance);
// The same for the instance that `spec.host` names.
AgentSpec own_part(AgentSpec spec);

// Of the sandbox and the control group: no job can have the name of another one's instance.
std::string sandbox_name(const AgentSpec& spec);
std::string sandbox_name(std::string_view job, std::string_view host);

// The name that decides which user of the host the program of an instance is
// (compute::program_identity()): the sandbox's own, or that of its warm pool.
std::string identity_name(const AgentSpec& spec);
std::string identity_name(const AgentSpec& spec, std::string_view host);

// The name of the user who passes on what the job's own network sends (compute/outward_network.h):
// none of its programs is that user.
std::string network_identity(std::string_view job);

struct InstanceEnd {
  std::string host;
  Outcome outcome;
  Time time{};
};

// The end of the job. One that failed makes it fail, the first of them with its cause, and who was
// ended because of it is not blamed; who fails after it is named behind it. Else it ran out of
// time, was interrupted or was stopped if any was, and is complete if all are. Ends are in the
// order of their hosts, the leader's first: its final metrics count before those of others.
Outcome outcome_of_job(const std::vector<InstanceEnd>& ends);

}  // namespace atelier::agent
