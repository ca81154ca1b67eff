// The variables and arguments of a script, as the toolkit's Environment computes them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "agent/internal/script_settings.h"

namespace atelier::agent::internal {
namespace {

// mapping.to_cmd_args()
std::vector<std::string> command_arguments(const PythonDict& hyperparameters) {
  std::map<std::string, const PythonValue*> sorted;
  for (const auto& [name, value] : hyperparameters.items) sorted.emplace(name, &value);
  std::vector<std::string> arguments;
  for (const auto& [name, value] : sorted) {
    arguments.push_back(name.empty() ? "" : (python_length(name) > 1 ? "--" : "-") + name);
    if (value->is_none()) {
      arguments.emplace_back();
    } else if (const PythonDict* dict = value->dict()) {
      std::map<std::string, std::string> members;
      for (const auto& [key, member] : dict->items) members.emplace(key, python_str(member));
      std::string joined;
      for (const auto& [key, member] : members) {
        joined += fmt::format("{}{}={}", joined.empty() ? "" : ",", key, member);
      }
      arguments.push_back(std::move(joined));
    } else {
      arguments.push_back(python_str(*value));
    }
  }
  return arguments;
}

// Every property of the toolkit's Environment by name; to_env_vars() exports most of them once
// more.
PythonDict environment_properties(const ScriptInput& input, const Split& split,
                                  const Cluster& cluster, const PythonDict& channels,
                                  const std::string& entry_point) {
  const std::string& base = input.base_folder;
  PythonDict channel_folders;
  for (const auto& [name, value] : channels.items) {
    // os.path.join
    channel_folders.set(name, name.starts_with("/") ? name : base + "/input/data/" + name);
  }
  const auto job_name = input.environment.find("TRAINING_JOB_NAME");
  const auto parallel = input.environment.find("SM_HP_MP_PARAMETERS");
  const auto program = input.environment.find("SAGEMAKER_PROGRAM");
  PythonDict all;
  all.set("additional_framework_parameters", split.framework);
  all.set("channel_input_dirs", channel_folders);
  all.set("current_host", cluster.current_host);
  all.set("current_instance_group", cluster.current_group);
  all.set("current_instance_group_hosts", cluster.group_hosts);
  all.set("current_instance_type", cluster.current_instance_type);
  all.set("distribution_hosts", cluster.distribution_hosts);
  all.set("distribution_instance_groups", cluster.distribution_groups);
  all.set("framework_module",
          input.framework_module.empty() ? PythonValue() : PythonValue(input.framework_module));
  all.set("hosts", cluster.hosts);
  all.set("hyperparameters", split.user);
  all.set("input_config_dir", base + "/input/config");
  all.set("input_data_config", channels);
  all.set("input_dir", base + "/input");
  all.set("instance_groups", cluster.group_names);
  all.set("instance_groups_dict", cluster.groups);
  all.set("is_hetero", cluster.group_names.size() > 1);
  all.set("is_master", cluster.current_host == cluster.master);
  PythonValue parallel_enabled;
  if (parallel != input.environment.end()) {
    // `value and value != "{}"` is the empty string itself when it is empty.
    parallel_enabled =
        parallel->second.empty() ? PythonValue("") : PythonValue(parallel->second != "{}");
  }
  all.set("is_modelparallel_enabled", std::move(parallel_enabled));
  all.set("is_smddpmprun_installed", false);
  all.set("is_smddprun_installed", false);
  all.set("job_name",
          job_name == input.environment.end() ? PythonValue() : PythonValue(job_name->second));
  all.set("log_level", get(split.toolkit, "sagemaker_container_log_level", 20));
  all.set("master_hostname", cluster.master);
  all.set("model_dir", base + "/model");
  all.set("module_dir",
          python_str(get(split.toolkit, "sagemaker_submit_directory", base + "/code")));
  all.set("module_name", module_name(program == input.environment.end()
                                         ? python_str(get(split.toolkit, "sagemaker_program", {}))
                                         : program->second));
  all.set("network_interface_name", cluster.network_interface);
  all.set("num_cpus", input.num_cpus);
  all.set("num_gpus", input.num_gpus);
  all.set("num_neurons", 0);
  all.set("output_data_dir", base + "/output/data");
  all.set("output_dir", base + "/output");
  all.set("output_intermediate_dir", base + "/output/intermediate");
  all.set("resource_config", cluster.config);
  all.set("topology", cluster.topology);
  all.set("user_entry_point", entry_point);
  return all;
}

// Environment.to_env_vars(), before the names get their SM_.
PythonDict exported(const PythonDict& properties, const std::vector<std::string>& arguments) {
  constexpr std::array<std::string_view, 26> kSame = {"hosts",
                                                      "network_interface_name",
                                                      "user_entry_point",
                                                      "resource_config",
                                                      "input_data_config",
                                                      "output_data_dir",
                                                      "current_host",
                                                      "current_instance_type",
                                                      "current_instance_group",
                                                      "current_instance_group_hosts",
                                                      "instance_groups",
                                                      "instance_groups_dict",
                                                      "distribution_instance_groups",
                                                      "is_hetero",
                                                      "module_name",
                                                      "log_level",
                                                      "framework_module",
                                                      "input_dir",
                                                      "input_config_dir",
                                                      "output_dir",
                                                      "num_cpus",
                                                      "num_gpus",
                                                      "num_neurons",
                                                      "model_dir",
                                                      "module_dir",
                                                      "output_intermediate_dir"};
  PythonDict out;
  for (const std::string_view name : kSame) out.set(std::string(name), *properties.find(name));
  const PythonDict& user = *properties.find("hyperparameters")->dict();
  const PythonDict& folders = *properties.find("channel_input_dirs")->dict();
  out.set("hps", user);
  out.set("framework_params", *properties.find("additional_framework_parameters"));
  PythonList channels;
  for (const auto& [name, folder] : folders.items) channels.emplace_back(name);
  std::ranges::sort(channels, {}, [](const PythonValue& name) { return *name.string(); });
  out.set("channels", std::move(channels));
  out.set("training_env", properties);
  out.set("user_args", PythonList(arguments.begin(), arguments.end()));
  if (properties.find("topology")->truthy()) out.set("topology", *properties.find("topology"));
  for (const auto& [name, folder] : folders.items) out.set("channel_" + name, folder);
  for (const auto& [name, value] : user.items) out.set("hp_" + name, value);
  return out;
}

// os.fsencode(): an escaped byte (U+DC80..U+DCFF) becomes that byte, any other unpaired surrogate
// cannot be passed to a program, and neither can a zero byte.
Result<std::string> to_program(std::string_view what, std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == 0) return invalid(fmt::format("{} holds a zero character", what));
    const bool surrogate = byte == 0xED && at + 2 < text.size() &&
                           (static_cast<unsigned char>(text[at + 1]) & 0x20) != 0;
    if (!surrogate) {
      out += text[at];
      continue;
    }
    const int code = 0xD000 | (text[at + 1] & 0x3F) << 6 | (text[at + 2] & 0x3F);
    if (code < 0xDC80 || code > 0xDCFF) {
      return invalid(fmt::format("{} holds an unpaired surrogate (\\u{:04x})", what, code));
    }
    out += static_cast<char>(code & 0xFF);
    at += 2;
  }
  return out;
}

// mapping.to_env_vars() into `environment`.
Result<void> export_variables(const PythonDict& variables,
                              std::map<std::string, std::string>& environment) {
  for (const auto& [key, value] : variables.items) {
    const std::string name = TRY(to_program("the name '" + key + "'", "SM_" + python_upper(key)));
    if (name.find('=') != std::string::npos) {
      return invalid(fmt::format(
          "'{}' cannot be exported to the script: '=' is not allowed in a hyperparameter's or "
          "channel's name",
          key));
    }
    const std::string text = value.is_none()  ? ""
                             : value.string() ? *value.string()
                                              : python_dumps(value);
    environment[name] = TRY(to_program("the value of '" + key + "'", text));
  }
  return {};
}

// What sagemaker_pytorch_container.training and the toolkit set besides the SM_ variables.
void add_framework_variables(const ScriptInput& input, const Split& split, const Cluster& cluster,

                             std::map<std::string, std::string>& environment) {
  environment["SAGEMAKER_JOB_NAME"] = python_str(get(split.toolkit, "sagemaker_job_name", ""));
  environment["CURRENT_HOST"] = cluster.current_host;
  const PythonValue region = get(split.toolkit, "sagemaker_region", input.region);
  environment["SAGEMAKER_REGION"] = region.truthy() ? python_str(region) : "";
  // The toolkit exports its own interpreter's whole sys.path; the interpreter that runs the script
  // here finds its own, so that only the code folder is new to it.
  const std::string code = input.base_folder + "/code";
  const auto path = input.environment.find("PYTHONPATH");
  environment["PYTHONPATH"] =
      path == input.environment.end() || path->second.empty() ? code : code + ":" + path->second;
  if (!input.framework_module.starts_with("sagemaker_pytorch_container")) return;
  environment["MASTER_ADDR"] = cluster.master;
  environment["MASTER_PORT"] = std::to_string(input.master_port);
  environment["NCCL_SOCKET_IFNAME"] = python_str(cluster.network_interface);
  environment["NCCL_IB_DISABLE"] = "1";
  environment["NCCL_DEBUG"] = "WARN";
  if (!input.framework_version.empty()) {
    environment["SM_DLC_TORCH_VERSION"] = input.framework_version;
  }
}

}  // namespace

Result<ScriptVariables> script_variables(const ScriptInput& input, const Split& split,
                                         const Cluster& cluster, const std::string& entry_point) {
  const PythonDict channels = TRY(parse_dict("inputdataconfig.json", input.input_data_config_json));
  const std::vector<std::string> arguments = command_arguments(split.user);
  const PythonDict properties =
      environment_properties(input, split, cluster, channels, entry_point);
  ScriptVariables variables;
  variables.module_dir = *properties.find("module_dir")->string();
  variables.environment = input.environment;
  TRY(export_variables(exported(properties, arguments), variables.environment));
  for (const std::string& argument : arguments) {
    variables.arguments.push_back(TRY(to_program("a hyperparameter", argument)));
  }
  add_framework_variables(input, split, cluster, variables.environment);
  return variables;
}

}  // namespace atelier::agent::internal
