// What the toolkit reads before it does anything: the hyperparameters by whom they are for, and the
// cluster of resourceconfig.json. Shared by the parts of script mode.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/python_value.h"
#include "agent/script_mode.h"
#include "base/result.h"

namespace atelier::agent::internal {

struct Split {
  PythonDict toolkit;    // meant for the toolkit itself
  PythonDict framework;  // sagemaker_* that it hands on as framework_params
  PythonDict user;
};
Result<Split> split_hyperparameters(const std::map<std::string, std::string>& hyperparameters);

// The cluster as the toolkit's Environment sees it.
struct Cluster {
  PythonDict config;
  PythonValue hosts, current_instance_type, network_interface, topology;
  std::string current_host, current_group, master;
  PythonList group_names, group_hosts;
  PythonDict groups;
  PythonValue distribution_groups, distribution_hosts;
};
// kInvalidArgument names what is wrong with the text of resourceconfig.json.
Result<Cluster> read_cluster(const std::string& text, const PythonDict& framework);

Error invalid(std::string message);
Result<PythonDict> parse_dict(std::string_view file, std::string_view text);
PythonValue get(const PythonDict& dict, std::string_view name, PythonValue otherwise);
// `needle in haystack` for a string.
bool contains(const PythonValue& haystack, const std::string& needle);
// "train" of "train.py".
std::string module_name(std::string program);

// script_launcher.cc
// What the framework's module would start the script with; kUnimplemented by the distribution's
// name where that cannot be had.
Result<Launcher> read_launcher(const ScriptInput& input, const Split& split,
                               const Cluster& cluster);
// The command line of the launcher around `script`, the command of one process; `entry_point` and
// `arguments` are the same in parts.
ScriptStep launched(const ScriptJob& job, std::vector<std::string> script);

// script_environment.cc
// Everything that the script sees, and the words of its command line.
struct ScriptVariables {
  std::map<std::string, std::string> environment;
  std::vector<std::string> arguments;
  std::string module_dir;  // where the source comes from
};
Result<ScriptVariables> script_variables(const ScriptInput& input, const Split& split,
                                         const Cluster& cluster, const std::string& entry_point);

}  // namespace atelier::agent::internal
