// print_script_job < REQUESTS: the ScriptJob and ScriptPlan of each request (a JSON object a line)
// as a JSON object a line, for comparison with the real toolkit.
#include <cstdio>
#include <iostream>
#include <iterator>

#include "agent/script_mode.h"
#include "base/json.h"

namespace {

using namespace atelier;

std::map<std::string, std::string> strings(const json::value& request, std::string_view name) {
  std::map<std::string, std::string> out;
  const json::object* members = find_object(request, name);
  if (members == nullptr) return out;
  for (const auto& [key, value] : *members) out.emplace(key, std::string(value.as_string()));
  return out;
}

json::object answer(const json::value& request) {
  agent::ScriptInput input;
  input.hyperparameters = strings(request, "hyperparameters");
  input.environment = strings(request, "environment");
  input.resource_config_json = find_string(request, "resource_config").value_or("");
  input.input_data_config_json = find_string(request, "input_data_config").value_or("");
  input.base_folder = find_string(request, "base_folder").value_or("/opt/ml");
  input.python = find_string(request, "python").value_or("/usr/bin/python3");
  input.framework_module = find_string(request, "framework_module").value_or("");
  input.region = find_string(request, "region").value_or("");
  input.num_cpus = static_cast<int>(find_int(request, "num_cpus").value_or(1));
  input.num_gpus = static_cast<int>(find_int(request, "num_gpus").value_or(0));
  input.has_mpirun = find_bool(request, "has_mpirun").value_or(false);
  const Result<agent::ScriptJob> job = agent::read_script_job(input);
  if (!job) return {{"error", job.error().message}};
  const std::string code = find_string(request, "code_folder").value_or("");
  const Result<agent::ScriptPlan> plan =
      agent::plan_script(*job, agent::look_at_code(code, job->entry_point));
  if (!plan) return {{"error", plan.error().message}};

  json::array steps;
  for (const agent::ScriptStep& step : plan->steps) {
    agent::FailureCollector collector;
    if (const json::array* lines = find_array(request, "output")) {
      for (const json::value& line : *lines) collector.line(line.as_string());
    }
    const agent::StepExit exit{.code = static_cast<int>(find_int(request, "exit_code").value_or(1)),
                               .signal = static_cast<int>(find_int(request, "signal").value_or(0))};
    steps.push_back(json::object{{"argv", json::value_from(step.argv)},
                                 {"environment", json::value_from(step.environment)},
                                 {"failure", agent::failure_text(*job, step, exit, collector)}});
  }
  return {{"environment", json::value_from(job->environment)},
          {"source", job->source.location},
          {"steps", std::move(steps)}};
}

}  // namespace

// One request a line, so that a test starts this program once.
int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const Result<json::value> request = parse_json(line);
    if (!request) {
      std::cerr << request.error().message << '\n';
      return 1;
    }
    std::cout << json::serialize(answer(*request)) << std::endl;
  }
  return 0;
}
