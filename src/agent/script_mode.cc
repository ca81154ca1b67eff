#include "agent/script_mode.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "agent/internal/script_settings.h"

namespace atelier::agent {
namespace {

using internal::Cluster;
using internal::get;
using internal::invalid;
using internal::Split;

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

}  // namespace

Result<ScriptJob> read_script_job(const ScriptInput& input) {
  const Split split = TRY(internal::split_hyperparameters(input.hyperparameters));
  const Cluster cluster = TRY(internal::read_cluster(input.resource_config_json, split.framework));

  ScriptJob job;
  job.python = input.python;
  job.master_port = input.master_port;
  job.pip_advice = input.pip_advice;
  job.entry_point = TRY(read_entry_point(input, split.toolkit));
  internal::ScriptVariables variables =
      TRY(internal::script_variables(input, split, cluster, job.entry_point));
  job.source = TRY(read_source(variables.module_dir, input.base_folder));
  job.launcher = TRY(internal::read_launcher(input, split, cluster));
  job.environment = std::move(variables.environment);
  job.arguments = std::move(variables.arguments);
  if (get(split.toolkit, "sagemaker_s3_output", {}).truthy()) {
    job.warnings.emplace_back(
        "sagemaker_s3_output is set, but /opt/ml/output/intermediate is not synced while the job "
        "runs");
  }
  return job;
}

}  // namespace atelier::agent
