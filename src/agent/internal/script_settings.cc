#include "agent/internal/script_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace atelier::agent::internal {
namespace {

// params.SAGEMAKER_HYPERPARAMETERS
constexpr std::array<std::string_view, 9> kToolkitNames = {"sagemaker_program",
                                                           "sagemaker_submit_directory",
                                                           "sagemaker_enable_cloudwatch_metrics",
                                                           "sagemaker_region",
                                                           "sagemaker_container_log_level",
                                                           "sagemaker_job_name",
                                                           "default_user_module_name",
                                                           "_tuning_objective_metric",
                                                           "sagemaker_s3_output"};

constexpr std::string_view kMasterPort = "7777";

Result<std::string> require_string(const PythonDict& dict, std::string_view name,
                                   std::string_view file) {
  const PythonValue* value = dict.find(name);
  if (!value || !value->string()) {
    return invalid(fmt::format("{} has no string '{}'", file, name));
  }
  return *value->string();
}

Result<void> read_groups(Cluster& cluster) {
  const PythonValue groups = get(cluster.config, "instance_groups", PythonList{});
  if (!groups.truthy()) return {};
  if (!groups.list()) return invalid("resourceconfig.json: instance_groups is not a list");
  bool found = false;
  for (const PythonValue& entry : *groups.list()) {
    if (!entry.dict()) return invalid("resourceconfig.json: an instance group is not an object");
    const std::string name =
        TRY(require_string(*entry.dict(), "instance_group_name", "an instance group"));
    cluster.group_names.emplace_back(name);
    cluster.groups.set(name, entry);
    if (name != cluster.current_group || found) continue;
    found = true;
    const PythonValue* hosts = entry.dict()->find("hosts");
    if (!hosts || !hosts->list()) {
      return invalid(fmt::format("resourceconfig.json: instance group '{}' has no hosts", name));
    }
    cluster.group_hosts = *hosts->list();
  }
  return {};
}

void choose_distribution(Cluster& cluster, const PythonDict& framework) {
  constexpr std::array<std::string_view, 7> kSwitches = {
      "sagemaker_mpi_enabled",
      "sagemaker_parameter_server_enabled",
      "sagemaker_distributed_dataparallel_enabled",
      "sagemaker_pytorch_ddp_enabled",
      "sagemaker_pytorch_xla_multi_worker_enabled",
      "sagemaker_multi_worker_mirrored_strategy_enabled",
      "sagemaker_torch_distributed_enabled"};
  PythonList by_switch;
  if (std::ranges::any_of(
          kSwitches, [&](std::string_view name) { return get(framework, name, false).truthy(); })) {
    by_switch.emplace_back(cluster.current_group);
  }
  cluster.distribution_groups =
      get(framework, "sagemaker_distribution_instance_groups", std::move(by_switch));
  if (cluster.group_names.empty()) {
    cluster.distribution_hosts = cluster.hosts;
    return;
  }
  PythonList hosts;
  for (const PythonValue& name : cluster.group_names) {
    if (!contains(cluster.distribution_groups, *name.string())) continue;
    const PythonValue* group = cluster.groups.find(*name.string());
    const PythonValue of_group = get(*group->dict(), "hosts", PythonList{});
    if (of_group.list())
      hosts.insert(hosts.end(), of_group.list()->begin(), of_group.list()->end());
  }
  cluster.distribution_hosts = std::move(hosts);
}

}  // namespace

Error invalid(std::string message) { return Error{Code::kInvalidArgument, std::move(message)}; }

Result<PythonDict> parse_dict(std::string_view file, std::string_view text) {
  Result<PythonValue> value = parse_python_json(text);
  if (!value) return value.error().within(file);
  if (!value->dict()) return invalid(fmt::format("{} is not a JSON object", file));
  return std::get<PythonDict>(std::move(value->data));
}

PythonValue get(const PythonDict& dict, std::string_view name, PythonValue otherwise) {
  const PythonValue* value = dict.find(name);
  return value ? *value : std::move(otherwise);
}

bool contains(const PythonValue& haystack, const std::string& needle) {
  if (const PythonList* list = haystack.list()) {
    return std::ranges::any_of(
        *list, [&](const PythonValue& item) { return item.string() && *item.string() == needle; });
  }
  if (const PythonDict* dict = haystack.dict()) return dict->find(needle) != nullptr;
  return haystack.string() && haystack.string()->find(needle) != std::string::npos;
}

std::string module_name(std::string program) {
  if (program.ends_with(".py")) program.resize(program.size() - 3);
  return program;
}

// read_hyperparameters(): what is no JSON stays the string that it is.
Result<Split> split_hyperparameters(const std::map<std::string, std::string>& hyperparameters) {
  Split split;
  for (const auto& [name, text] : hyperparameters) {
    Result<PythonValue> parsed = parse_python_json(text);
    PythonValue value = parsed ? std::move(*parsed) : PythonValue(text);
    const bool known = std::ranges::find(kToolkitNames, name) != kToolkitNames.end();
    if (known) {
      split.toolkit.set(name, std::move(value));
    } else if (name.starts_with("sagemaker_")) {
      split.framework.set(name, std::move(value));
    } else {
      split.user.set(name, std::move(value));
    }
  }
  return split;
}

Result<Cluster> read_cluster(const std::string& text, const PythonDict& framework) {
  Cluster cluster;
  cluster.config = TRY(parse_dict("resourceconfig.json", text));
  cluster.hosts = get(cluster.config, "hosts", PythonList{});
  if (!cluster.hosts.list() || cluster.hosts.list()->empty()) {
    return invalid("resourceconfig.json: 'hosts' must list at least one host");
  }
  cluster.current_host = TRY(require_string(cluster.config, "current_host", "resourceconfig.json"));
  cluster.current_instance_type = get(cluster.config, "current_instance_type", "local");
  cluster.current_group =
      python_str(get(cluster.config, "current_group_name", "homogeneousCluster"));
  cluster.network_interface = get(cluster.config, "network_interface_name", "eth0");
  cluster.topology = get(cluster.config, "topology", PythonList{});
  TRY(read_groups(cluster));
  choose_distribution(cluster, framework);
  const PythonList& masters = *cluster.distribution_hosts.list();
  cluster.master = python_str(masters.empty() ? cluster.hosts.list()->front() : masters.front());
  return cluster;
}

}  // namespace atelier::agent::internal
