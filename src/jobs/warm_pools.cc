#include "jobs/warm_pools.h"

#include <algorithm>

#include "base/json.h"

namespace atelier::jobs {
namespace {

// Sorted by name at each level, so that equal requests give equal texts.
json::value in_order(const json::value& value) {
  if (const json::array* array = value.if_array()) {
    json::array out;
    for (const json::value& item : *array) out.push_back(in_order(item));
    return out;
  }
  const json::object* object = value.if_object();
  if (object == nullptr) return value;
  std::map<std::string, json::value> members;
  for (const auto& [name, item] : *object) members.emplace(name, in_order(item));
  json::object out;
  for (auto& [name, item] : members) out.emplace(name, std::move(item));
  return out;
}

}  // namespace

std::string pool_terms(const TrainingJob& job) {
  const bool known =
      !job.created_by.empty() && job.created_by.find(":assumed-role/") == std::string::npos;
  if (job.terms.spot || !known) return {};
  const Result<json::value> request = parse_json(job.request_json);
  if (!request || !request->is_object()) return {};
  const json::object* asked = find_object(*request, "ResourceConfig");
  json::object resources = asked != nullptr ? *asked : json::object{};
  resources.erase("KeepAlivePeriodInSeconds");
  const auto image = [&](std::string_view name) {
    const json::object* algorithm = find_object(*request, "AlgorithmSpecification");
    return algorithm != nullptr ? find_string(*algorithm, name).value_or("") : "";
  };
  const auto flag = [&](std::string_view name) {
    return find_bool(*request, name).value_or(false);
  };
  const json::value* vpc = find_member(*request, "VpcConfig");
  return json::serialize(json::array{
      job.created_by, find_string(*request, "RoleArn").value_or(""), image("TrainingImage"),
      image("AlgorithmName"), in_order(resources), flag("EnableNetworkIsolation"),
      flag("EnableInterContainerTrafficEncryption"),
      vpc != nullptr ? in_order(*vpc) : json::value{}, job.vcpus, job.memory_gib, job.gpus});
}

void WarmPools::keep(const TrainingJob& job, Steady since) {
  const auto [at, is_new] = pools_.try_emplace(job.name, Pool{{}, {}, {}, since, since});
  if (is_new) {
    at->second.terms = pool_terms(job);
    at->second.created_by = job.created_by;
    at->second.owner = job.warm.owner;
  }
  at->second.end = at->second.since + job.warm.keep_alive;
}

std::optional<std::string> WarmPools::match(const TrainingJob& newcomer) const {
  if (pools_.empty() || newcomer.admitted || newcomer.attempts.number > 1 ||
      !newcomer.warm.of.empty()) {
    return std::nullopt;
  }
  const std::string terms = pool_terms(newcomer);
  if (terms.empty()) return std::nullopt;
  const Pool* best = nullptr;
  std::optional<std::string> found;
  for (const auto& [job, pool] : pools_) {
    if (pool.terms != terms || (best != nullptr && pool.since <= best->since)) continue;
    if (!has_owner(pool)) continue;
    best = &pool;
    found = job;
  }
  return found;
}

std::vector<std::string> WarmPools::without_owner() const {
  std::vector<std::string> names;
  for (const auto& [job, pool] : pools_) {
    if (!has_owner(pool)) names.push_back(job);
  }
  return names;
}

std::optional<WarmPools::Steady> WarmPools::next_end() const {
  std::optional<Steady> next;
  for (const auto& [job, pool] : pools_) next = std::min(next.value_or(pool.end), pool.end);
  return next;
}

std::vector<std::string> WarmPools::over(Steady now) const {
  std::vector<std::string> names;
  for (const auto& [job, pool] : pools_) {
    if (pool.end <= now) names.push_back(job);
  }
  return names;
}

void WarmPools::put_off(const std::string& job, Steady until) {
  const auto pool = pools_.find(job);
  if (pool != pools_.end()) pool->second.end = until;
}

}  // namespace atelier::jobs
