#include "agent/script_mode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <unordered_set>

#include "agent/python_value.h"

namespace atelier::agent {
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

struct Split {
  PythonDict toolkit;    // meant for the toolkit itself
  PythonDict framework;  // sagemaker_* that it hands on as framework_params
  PythonDict user;
};

Error invalid(std::string message) { return Error{Code::kInvalidArgument, std::move(message)}; }

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

Result<std::string> require_string(const PythonDict& dict, std::string_view name,
                                   std::string_view file) {
  const PythonValue* value = dict.find(name);
  if (!value || !value->string()) {
    return invalid(fmt::format("{} has no string '{}'", file, name));
  }
  return *value->string();
}

// `needle in haystack` for a string.
bool contains(const PythonValue& haystack, const std::string& needle) {
  if (const PythonList* list = haystack.list()) {
    return std::ranges::any_of(
        *list, [&](const PythonValue& item) { return item.string() && *item.string() == needle; });
  }
  if (const PythonDict* dict = haystack.dict()) return dict->find(needle) != nullptr;
  return haystack.string() && haystack.string()->find(needle) != std::string::npos;
}

// The cluster as the toolkit's Environment sees it.
struct Cluster {
  PythonDict config;
  PythonValue hosts, current_instance_type, network_interface, topology;
  std::string current_host, current_group, master;
  PythonList group_names, group_hosts;
  PythonDict groups;
  PythonValue distribution_groups, distribution_hosts;
};

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

std::string module_name(std::string program) {
  if (program.ends_with(".py")) program.resize(program.size() - 3);
  return program;
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

// entry_point's and process's checks of the name, in the toolkit's words.
Result<void> validate_entry_point(const std::string& name) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-/";
  constexpr std::string_view kAdvice =
      "Set the 'sagemaker_program' hyperparameter (or ContainerEntrypoint) to a path relative to "
      "your source directory -- for example 'train.py' or 'bin/train.sh'.";
  if (name.empty()) {
    return invalid(fmt::format("The training entry point name is empty. {}", kAdvice));
  }
  std::string why;
  if (name.find_first_not_of(kAllowed) != std::string::npos) {
    why = "characters other than letters, digits, '.', '_', '+', '-' and '/'";
  } else if (name.starts_with("-")) {
    why = "a leading '-', which is read as a command-line option";
  } else if (name.starts_with("/")) {
    why = "a leading '/', which makes it an absolute path";
  } else if (name.starts_with("+") || name.ends_with("/") || name.find("//") != std::string::npos) {
    why = "an unsupported character at the start of the name, or an empty path segment";
  }
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string segment = name.substr(at, end - at);
    if (segment == "." || segment == "..") why = "'.' or '..' path segments";
    at = end + 1;
  }
  if (why.empty()) return {};
  return invalid(
      fmt::format("The training entry point '{}' cannot be used because it contains {}. {}", name,
                  why, kAdvice));
}

Result<std::string> read_entry_point(const ScriptInput& input, const PythonDict& toolkit) {
  const auto from_environment = input.environment.find("SAGEMAKER_PROGRAM");
  std::string name;
  if (from_environment != input.environment.end() && !from_environment->second.empty()) {
    name = from_environment->second;
  } else if (const PythonValue* value = toolkit.find("sagemaker_program"); value != nullptr) {
    if (!value->string()) {
      return invalid(fmt::format("hyperparameter sagemaker_program is {}, not the name of a script",
                                 python_dumps(*value)));
    }
    name = *value->string();
  }
  TRY(validate_entry_point(name));
  return name;
}

Result<ScriptSource> read_source(const std::string& location, const std::string& base) {
  if (location == base + "/code") return ScriptSource{};
  if (location.starts_with("s3://")) return ScriptSource{ScriptSource::Kind::kS3, location};
  if (location.starts_with(base + "/input/data/") && location.find("/../") == std::string::npos) {
    return ScriptSource{ScriptSource::Kind::kChannel, location};
  }
  return invalid(fmt::format(
      "hyperparameter sagemaker_submit_directory is '{}': the source must be an s3:// address of a "
      ".tar.gz, or one that a channel brings to {}/input/data/; folders of the client's machine "
      "(local mode) are not served",
      location, base));
}

// Which launcher the framework's module would take; 0 for the plain process.
Result<int> read_torchrun(const ScriptInput& input, const Split& split, const Cluster& cluster) {
  if (!contains(cluster.distribution_groups, cluster.current_group)) return 0;
  const auto enabled = [&](std::string_view name) {
    return get(split.framework, name, false).truthy();
  };
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kRefused = {{
      {"sagemaker_mpi_enabled", "mpi"},
      {"sagemaker_pytorch_ddp_enabled", "pytorchddp"},
      {"sagemaker_distributed_dataparallel_enabled", "smdistributed.dataparallel"},
      {"sagemaker_pytorch_xla_multi_worker_enabled", "pytorchxla"},
  }};
  for (const auto& [name, distribution] : kRefused) {
    if (enabled(name)) {
      return Error{Code::kUnimplemented,
                   fmt::format("distribution '{}' (hyperparameter {}) is not served; leave "
                               "`distribution` out, or use {{'torch_distributed': {{'enabled': "
                               "True}}}}",
                               distribution, name)};
    }
  }
  return enabled("sagemaker_torch_distributed_enabled") ? std::max(1, input.num_gpus) : 0;
}

// What sagemaker_pytorch_container.training and the toolkit set besides the SM_ variables.
void add_framework_variables(const ScriptInput& input, const Split& split, const Cluster& cluster,
                             ScriptJob& job) {
  auto& environment = job.environment;
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
  environment["MASTER_PORT"] = kMasterPort;
  environment["NCCL_SOCKET_IFNAME"] = python_str(cluster.network_interface);
  environment["NCCL_IB_DISABLE"] = "1";
  environment["NCCL_DEBUG"] = "WARN";
  if (job.torchrun_processes > 0) environment["NCCL_PROTO"] = "simple";
  if (!input.framework_version.empty()) {
    environment["SM_DLC_TORCH_VERSION"] = input.framework_version;
  }
}

// The toolkit runs pip as root in a container that dies with the job. Here pip writes to a folder
// of the job's own, which Python searches before the machine's packages.
void add_python_user_folder(const ScriptInput& input, ScriptJob& job) {
  job.environment.try_emplace("PYTHONUSERBASE", input.base_folder + "/.python");
}

}  // namespace

Result<ScriptJob> read_script_job(const ScriptInput& input) {
  const Split split = TRY(split_hyperparameters(input.hyperparameters));
  const Cluster cluster = TRY(read_cluster(input.resource_config_json, split.framework));
  const PythonDict channels = TRY(parse_dict("inputdataconfig.json", input.input_data_config_json));

  ScriptJob job;
  job.python = input.python;
  job.network_isolation = input.network_isolation;
  job.entry_point = TRY(read_entry_point(input, split.toolkit));
  const std::vector<std::string> arguments = command_arguments(split.user);
  const PythonDict properties =
      environment_properties(input, split, cluster, channels, job.entry_point);
  job.source = TRY(read_source(*properties.find("module_dir")->string(), input.base_folder));
  job.torchrun_processes = TRY(read_torchrun(input, split, cluster));
  job.environment = input.environment;
  TRY(export_variables(exported(properties, arguments), job.environment));
  for (const std::string& argument : arguments) {
    job.arguments.push_back(TRY(to_program("a hyperparameter", argument)));
  }
  add_framework_variables(input, split, cluster, job);
  add_python_user_folder(input, job);
  if (get(split.toolkit, "sagemaker_s3_output", {}).truthy()) {
    job.warnings.emplace_back(
        "sagemaker_s3_output is set, but /opt/ml/output/intermediate is not synced while the job "
        "runs");
  }
  return job;
}

CodeFolder look_at_code(const std::filesystem::path& folder, std::string_view entry_point) {
  std::error_code ignored;  // what cannot be looked at is not there
  return CodeFolder{
      .has_setup_py = std::filesystem::exists(folder / "setup.py", ignored),
      .has_requirements = std::filesystem::exists(folder / "requirements.txt", ignored),
      .has_entry_point = std::filesystem::exists(folder / entry_point, ignored)};
}

namespace {

ScriptStep install_step(const ScriptJob& job, ScriptStep::Kind kind, bool requirements) {
  ScriptStep step;
  step.kind = kind;
  step.argv = {job.python, "-m", "pip", "install"};
  if (kind == ScriptStep::Kind::kInstallPackage) step.argv.emplace_back(".");
  if (requirements) {
    step.argv.emplace_back("-r");
    step.argv.emplace_back("requirements.txt");
  }
  // Debian's pip refuses to touch the machine's packages without the second word (PEP 668); with
  // PYTHONUSERBASE it does not touch them.
  step.environment = {{"PIP_USER", "1"},
                      {"PIP_BREAK_SYSTEM_PACKAGES", "1"},
                      {"PIP_NO_CACHE_DIR", "1"},
                      {"PIP_DISABLE_PIP_VERSION_CHECK", "1"}};
  step.announcement = kind == ScriptStep::Kind::kInstallPackage
                          ? "Installing module."
                          : "Installing dependencies from requirements.txt";
  if (job.network_isolation) {
    // Fails at once instead of after minutes of retries; wheels inside of source_dir still install.
    step.environment["PIP_NO_INDEX"] = "1";
    step.announcement +=
        " (EnableNetworkIsolation is on: only what source_dir brings can be installed)";
  }
  return step;
}

ScriptStep run_step(const ScriptJob& job, bool package) {
  ScriptStep step;
  const bool command =
      job.entry_point.ends_with(".sh") || (!package && !job.entry_point.ends_with(".py"));
  if (job.torchrun_processes > 0) {
    step.argv = {
        "torchrun",     "--nnodes", "1", "--nproc_per_node", std::to_string(job.torchrun_processes),
        job.entry_point};
  } else if (command) {
    std::string line = "./" + shell_quote(job.entry_point) + " ";
    for (std::size_t i = 0; i < job.arguments.size(); ++i) {
      line += (i > 0 ? " " : "") + shell_quote(job.arguments[i]);
    }
    step.argv = {"/bin/sh", "-c", line};
    return step;
  } else if (package) {
    step.argv = {job.python, "-m", module_name(job.entry_point)};
  } else {
    step.argv = {job.python, "--", job.entry_point};
  }
  step.argv.insert(step.argv.end(), job.arguments.begin(), job.arguments.end());
  return step;
}

}  // namespace

Result<ScriptPlan> plan_script(const ScriptJob& job, const CodeFolder& code) {
  const bool shell = job.entry_point.ends_with(".sh");
  const bool package = !shell && code.has_setup_py;
  const bool python = package || job.entry_point.ends_with(".py");
  if (!package && !code.has_entry_point) {
    return invalid(fmt::format(
        "the entry point '{}' is not in the source that was uploaded; it must be a path inside of "
        "source_dir",
        job.entry_point));
  }
  if (job.torchrun_processes > 0 && (package || !python)) {
    return invalid(fmt::format("torch_distributed starts Python scripts only, and '{}' is a {}",
                               job.entry_point,
                               package ? "package (source_dir has a setup.py)" : "command"));
  }
  ScriptPlan plan;
  if (package) {
    plan.steps.push_back(
        install_step(job, ScriptStep::Kind::kInstallPackage, code.has_requirements));
  } else if (python && code.has_requirements) {
    plan.steps.push_back(install_step(job, ScriptStep::Kind::kInstallRequirements, true));
  }
  plan.steps.push_back(run_step(job, package));
  plan.make_executable = !python;
  return plan;
}

}  // namespace atelier::agent
