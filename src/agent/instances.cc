#include "agent/instances.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace atelier::agent {
namespace {

// The API's limit of FailureReason.
constexpr std::size_t kReasonBytes = 1024;
constexpr std::size_t kOtherBytes = 160;

// "AlgorithmError: " stays in front: clients and RetryStrategy go by it.
std::string with_host(const std::string& message, const std::string& host) {
  for (const std::string_view prefix :
       {"AlgorithmError: ", "ClientError: ", "InternalServerError: "}) {
    if (!message.starts_with(prefix)) continue;
    return fmt::format("{}{}: {}", prefix, host, message.substr(prefix.size()));
  }
  return host + ": " + message;
}

// The first line, without the class of the error.
std::string in_short(const InstanceEnd& end) {
  std::string words = end.outcome.message.substr(0, end.outcome.message.find('\n'));
  const std::size_t colon = words.find(": ");
  if (colon != std::string::npos) words = words.substr(colon + 2);
  if (words.size() > kOtherBytes) words = words.substr(0, kOtherBytes) + "...";
  return fmt::format("{}: {}", end.host, words);
}

std::string reason(const std::vector<const InstanceEnd*>& failed) {
  std::string text = with_host(failed.front()->outcome.message, failed.front()->host);
  for (std::size_t i = 1; i < failed.size(); ++i) {
    const auto later = std::chrono::duration<double>(failed[i]->time - failed.front()->time);
    const std::string more =
        fmt::format(" ({:.1f} s later {})", later.count(), in_short(*failed[i]));
    if (text.size() + more.size() > kReasonBytes) break;
    text += more;
  }
  return text;
}

bool has(const ChannelSpec& channel, const InstanceSpec& instance) {
  return channel.groups.empty() ||
         std::ranges::find(channel.groups, instance.group) != channel.groups.end();
}

// Among the instances that have the channel, in the order of their numbers.
void set_shard(const AgentSpec& job, const InstanceSpec& instance, ChannelSpec& channel) {
  channel.shard_index = 0;
  channel.shard_count = 0;
  for (const InstanceSpec& each : job.instances) {
    if (!has(channel, each)) continue;
    if (each.host == instance.host) channel.shard_index = channel.shard_count;
    ++channel.shard_count;
  }
  channel.shard_count = std::max(channel.shard_count, 1);
}

}  // namespace

std::vector<InstanceSpec> instances_of(const AgentSpec& spec) {
  if (!spec.instances.empty()) return spec.instances;
  InstanceSpec only;
  only.host = spec.host;
  only.instance_type = spec.instance_type;
  only.vcpus = spec.vcpus;
  only.memory_gib = spec.memory_gib;
  only.gpus = spec.gpus;
  return {only};
}

std::vector<std::string> host_names(const AgentSpec& spec) {
  std::vector<std::string> names;
  for (const InstanceSpec& instance : instances_of(spec)) names.push_back(instance.host);
  std::ranges::sort(names);
  return names;
}

AgentSpec spec_of_instance(const AgentSpec& job, const InstanceSpec& instance) {
  AgentSpec spec = job;
  spec.host = instance.host;
  spec.instance_type = instance.instance_type;
  spec.vcpus = instance.vcpus;
  spec.memory_gib = instance.memory_gib;
  spec.gpus = instance.gpus;
  const std::string first = fmt::format("/{}-", kLeader);
  const std::size_t at = spec.log_stream.rfind(first);
  if (at != std::string::npos) {
    spec.log_stream.replace(at, first.size(), fmt::format("/{}-", instance.host));
  }
  std::erase_if(spec.channels, [&](const ChannelSpec& channel) { return !has(channel, instance); });
  for (ChannelSpec& channel : spec.channels) set_shard(job, instance, channel);
  return spec;
}

AgentSpec own_part(AgentSpec spec) {
  for (const InstanceSpec& instance : spec.instances) {
    if (instance.host == spec.host) return spec_of_instance(spec, instance);
  }
  return spec;
}

std::string sandbox_name(std::string_view job, std::string_view host) {
  return host == kLeader ? std::string{job} : fmt::format("{}.{}", job, host);
}

std::string sandbox_name(const AgentSpec& spec) { return sandbox_name(spec.job_name, spec.host); }

std::string identity_name(const AgentSpec& spec, std::string_view host) {
  // The pool's name has a dot and is none of a job.
  const std::string pool = std::filesystem::path{spec.warm_pool}.filename().string();
  return sandbox_name(pool.empty() ? spec.job_name : pool, host);
}

std::string identity_name(const AgentSpec& spec) { return identity_name(spec, spec.host); }

std::string network_identity(std::string_view job) { return fmt::format("{}.network", job); }

Outcome outcome_of_job(const std::vector<InstanceEnd>& ends) {
  std::vector<const InstanceEnd*> failed;
  for (const InstanceEnd& end : ends) {
    if (end.outcome.kind == "failed") failed.push_back(&end);
  }
  std::ranges::stable_sort(failed, {}, [](const InstanceEnd* end) { return end->time; });
  Outcome outcome;
  if (!failed.empty()) {
    outcome = failed.front()->outcome;
    outcome.message = reason(failed);
  } else {
    const auto any = [&](std::string_view kind) {
      return std::ranges::find(ends, kind, [](const InstanceEnd& end) { return end.outcome.kind; });
    };
    auto chosen = ends.begin();
    for (const std::string_view kind : {"max-runtime", "interrupted", "stopped"}) {
      if (any(kind) == ends.end()) continue;
      chosen = any(kind);
      break;
    }
    outcome = chosen->outcome;
  }
  outcome.final_metrics.clear();
  for (const InstanceEnd& end : ends) {
    outcome.ran = outcome.ran || end.outcome.ran;
    outcome.killed = outcome.killed || end.outcome.killed;
    outcome.beyond_volume = outcome.beyond_volume || end.outcome.beyond_volume;
    outcome.final_metrics.insert(end.outcome.final_metrics.begin(),
                                 end.outcome.final_metrics.end());
  }
  return outcome;
}

}  // namespace atelier::agent
