#include "jobs/request_instances.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/json.h"

namespace atelier::jobs {
namespace {

// Below it a Python program takes minutes to begin.
constexpr double kLeastVcpus = 0.1;
constexpr double kLeastMemoryGib = 0.125;
constexpr const char* kOneGroup = "homogeneousCluster";

struct Group {
  std::string name, type;
  std::int64_t count = 1;
};

const json::array* groups_in(const json::value& resources) {
  const json::array* groups = find_array(resources, "InstanceGroups");
  return groups != nullptr && !groups->empty() ? groups : nullptr;
}

std::vector<Group> read_groups(const json::value& resources) {
  std::vector<Group> found;
  if (const json::array* groups = groups_in(resources)) {
    for (const json::value& group : *groups) {
      found.push_back({find_string(group, "InstanceGroupName").value_or(""),
                       find_string(group, "InstanceType").value_or(""),
                       find_int(group, "InstanceCount").value_or(1)});
    }
  } else {
    found.push_back({kOneGroup, find_string(resources, "InstanceType").value_or(""),
                     find_int(resources, "InstanceCount").value_or(1)});
  }
  return found;
}

Result<compute::InstanceType> find_type(const compute::InstanceTable& table,
                                        const std::string& name) {
  if (const auto type = compute::find_instance_type(table, name)) return *type;
  std::vector<std::string> known;
  for (const auto& each : table.types) known.push_back(each.name);
  return Error{Code::kInvalidArgument,
               fmt::format("ResourceConfig.InstanceType '{}' is not in this server's table of "
                           "instance types: known are {}, and sizes such as ml.cpu.4x and "
                           "ml.gpu.1x",
                           name, fmt::join(known, ", "))};
}

void add_warnings(std::vector<std::string>& all, const std::vector<std::string>& some) {
  for (const std::string& words : some) {
    if (std::ranges::find(all, words) == all.end()) all.push_back(words);
  }
}

// Cuts what the instances ask for together down to the host, each by the same part.
Result<void> fit(InstancesPlan& plan, const compute::HostCapacity& host, bool strict) {
  compute::Allocation& total = plan.total;
  const auto count = plan.instances.size();
  const bool fits =
      total.vcpus <= host.vcpus && total.memory_gib <= host.memory_gib && total.gpus <= host.gpus;
  if (fits) return {};
  const std::string wish = fmt::format(
      "{} instances ask for {:.4g} vCPUs, {:.4g} GiB of memory and {} GPUs together; this host has "
      "{:.4g}, {:.4g} and {}",
      count, total.vcpus, total.memory_gib, total.gpus, host.vcpus, host.memory_gib, host.gpus);
  const double cpu_part = std::min(1.0, host.vcpus / total.vcpus);
  const double memory_part = std::min(1.0, host.memory_gib / total.memory_gib);
  for (agent::InstanceSpec& instance : plan.instances) {
    instance.vcpus *= cpu_part;
    instance.memory_gib *= memory_part;
    if (strict) return Error{Code::kResourceExhausted, wish + ", and the instance table is strict"};
    if (instance.vcpus < kLeastVcpus || instance.memory_gib < kLeastMemoryGib) {
      return Error{Code::kResourceExhausted,
                   fmt::format("{}, which leaves one of them {:.3g} vCPUs and {:.3g} GiB; ask for "
                               "fewer instances",
                               wish, instance.vcpus, instance.memory_gib)};
    }
  }
  total.vcpus *= cpu_part;
  total.memory_gib *= memory_part;
  std::string parts = ": each gets its part of that";
  if (total.gpus > host.gpus) {
    int granted = 0;
    for (agent::InstanceSpec& instance : plan.instances) {
      instance.gpus = instance.gpus * host.gpus / total.gpus;
      granted += instance.gpus;
    }
    total.gpus = granted;
    parts += fmt::format(", {} {} GPUs", plan.instances.front().host, plan.instances.front().gpus);
  }
  total.warnings.push_back(wish + parts + ".");
  return {};
}

}  // namespace

Result<InstancesPlan> plan_instances(const json::value& resources,
                                     const compute::InstanceTable& table,
                                     const compute::HostCapacity& host) {
  InstancesPlan plan;
  for (const Group& group : read_groups(resources)) {
    const compute::InstanceType type = TRY(find_type(table, group.type));
    const compute::Allocation each = TRY(compute::allocate(type, host, table.strict));
    add_warnings(plan.total.warnings, each.warnings);
    for (std::int64_t i = 0; i < group.count; ++i) {
      agent::InstanceSpec& instance = plan.instances.emplace_back();
      instance.host = fmt::format("algo-{}", plan.instances.size());
      instance.group = group.name;
      instance.instance_type = type.name;
      instance.vcpus = each.vcpus;
      instance.memory_gib = each.memory_gib;
      instance.gpus = each.gpus;
      plan.total.vcpus += each.vcpus;
      plan.total.memory_gib += each.memory_gib;
      plan.total.gpus += each.gpus;
      plan.price_per_hour += type.price_per_hour;
      plan.spot_price_per_hour += type.spot_price_per_hour;
    }
  }
  plan.price_per_hour /= static_cast<double>(plan.instances.size());
  plan.spot_price_per_hour /= static_cast<double>(plan.instances.size());
  TRY(fit(plan, host, table.strict));
  return plan;
}

namespace {

void check_groups(const json::value& resources, std::vector<std::string>& wrong) {
  for (const char* name : {"InstanceType", "InstanceCount"}) {
    if (find_member(resources, name) != nullptr) {
      wrong.push_back(
          fmt::format("ResourceConfig.{} can not be given together with InstanceGroups", name));
    }
  }
  std::set<std::string> names;
  for (const Group& group : read_groups(resources)) {
    if (!names.insert(group.name).second) {
      wrong.push_back(
          fmt::format("ResourceConfig.InstanceGroups has the name '{}' twice", group.name));
    }
  }
}

void check_channels(const json::value& request, const json::value& resources,
                    std::vector<std::string>& wrong) {
  const json::array* channels = find_array(request, "InputDataConfig");
  if (channels == nullptr) return;
  const std::vector<Group> groups = read_groups(resources);
  std::size_t restricted = 0;
  for (const json::value& channel : *channels) {
    const json::value* source = find_member(channel, "DataSource");
    const json::value* s3 = source == nullptr ? nullptr : find_member(*source, "S3DataSource");
    const json::array* names = s3 == nullptr ? nullptr : find_array(*s3, "InstanceGroupNames");
    if (names == nullptr || names->empty()) continue;
    ++restricted;
    for (const json::value& name : *names) {
      if (groups_in(resources) != nullptr && name.is_string() &&
          std::ranges::find(groups, std::string_view{name.get_string()}, &Group::name) !=
              groups.end()) {
        continue;
      }
      wrong.push_back(fmt::format(
          "InputDataConfig channel '{}': InstanceGroupNames has {}, which is no group of "
          "ResourceConfig.InstanceGroups",
          find_string(channel, "ChannelName").value_or(""), json::serialize(name)));
    }
  }
  if (restricted != 0 && restricted != channels->size()) {
    wrong.emplace_back(
        "Either all channels of InputDataConfig have InstanceGroupNames, or none has");
  }
}

}  // namespace

std::vector<std::string> instance_mistakes(const json::value& request) {
  static const json::value kAbsent;
  const json::value* given = find_member(request, "ResourceConfig");
  const json::value& resources = given == nullptr ? kAbsent : *given;
  std::vector<std::string> wrong;
  if (groups_in(resources) != nullptr) {
    check_groups(resources, wrong);
  } else {
    for (const char* name : {"InstanceType", "InstanceCount"}) {
      if (find_member(resources, name) == nullptr) {
        wrong.push_back(fmt::format("ResourceConfig.{} must be specified", name));
      }
    }
  }
  std::int64_t count = 0;
  for (const Group& group : read_groups(resources)) {
    if (group.count < 1 || group.count > kMaxInstances) {
      wrong.push_back(fmt::format("ResourceConfig.InstanceCount {} must be from 1 to {}",
                                  group.count, kMaxInstances));
    }
    count += std::clamp<std::int64_t>(group.count, 0, kMaxInstances);
  }
  if (wrong.empty() && count > kMaxInstances) {
    wrong.push_back(fmt::format("ResourceConfig.InstanceGroups has {} instances: at most {}", count,
                                kMaxInstances));
  }
  check_channels(request, resources, wrong);
  return wrong;
}

}  // namespace atelier::jobs
