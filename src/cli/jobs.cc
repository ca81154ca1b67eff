#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/json.h"
#include "cli/connection.h"
#include "cli/follow.h"
#include "cli/job_view.h"
#include "cli/results.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace atelier::cli {
namespace {

struct JobsOptions {
  std::string data_folder;
  std::string name;
  std::string status;
  std::string folder;
  std::string reason;
  std::string instance;
  int limit = 20;
  bool follow = false;
  bool times = false;
  bool as_json = false;
};

Result<int> list(const JobsOptions& options) {
  ApiClient api{TRY(find_connection(options.data_folder))};
  json::array rows;
  std::string token;
  while (static_cast<int>(rows.size()) < options.limit) {
    json::object request{
        {"MaxResults", std::min(100, options.limit - static_cast<int>(rows.size()))},
        {"SortOrder", "Descending"}};
    if (!options.status.empty()) request["StatusEquals"] = options.status;
    if (!options.name.empty()) request["NameContains"] = options.name;
    if (!token.empty()) request["NextToken"] = token;
    const json::value page = TRY(api.call("SageMaker.ListTrainingJobs", request));
    if (const json::array* jobs = find_array(page, "TrainingJobSummaries")) {
      rows.insert(rows.end(), jobs->begin(), jobs->end());
    }
    token = find_string(page, "NextToken").value_or("");
    if (token.empty()) break;
  }
  if (options.as_json) {
    std::cout << pretty_json(rows) << '\n';
    return kOk;
  }
  for (const json::value& job : rows) {
    std::cout << fmt::format(
        "{:<10}  {}  {}\n", find_string(job, "TrainingJobStatus").value_or(""),
        format_iso8601(from_epoch_seconds(find_number(job, "CreationTime").value_or(0))),
        shown_on_stdout(find_string(job, "TrainingJobName").value_or("")));
  }
  if (rows.empty()) std::cout << "no jobs\n";
  return kOk;
}

Result<int> show(const JobsOptions& options) {
  ApiClient api{TRY(find_connection(options.data_folder))};
  const json::value job = TRY(
      api.call("SageMaker.DescribeTrainingJob", json::object{{"TrainingJobName", options.name}}));
  if (options.as_json) {
    std::cout << pretty_json(job) << '\n';
    return kOk;
  }
  print_job_summary(job);
  print_job_cost(TRY(api.call("Atelier.DescribeTrainingJobCost",
                              json::object{{"TrainingJobName", options.name}})));
  return kOk;
}

Result<int> stop(const JobsOptions& options) {
  ApiClient api{TRY(find_connection(options.data_folder))};
  TRY(api.call("SageMaker.StopTrainingJob", json::object{{"TrainingJobName", options.name}}));
  if (options.as_json)
    std::cout << pretty_json(json::object{{"name", options.name}, {"stopping", true}}) << '\n';
  else
    std::cout << "stopping " << options.name << '\n';
  return kOk;
}

Result<int> interrupt(const JobsOptions& options) {
  ApiClient api{TRY(find_connection(options.data_folder))};
  json::object request{{"TrainingJobName", options.name}};
  if (!options.reason.empty()) request["Reason"] = options.reason;
  TRY(api.call("Atelier.InterruptTrainingJob", request));
  if (options.as_json)
    std::cout << pretty_json(json::object{{"name", options.name}, {"interrupting", true}}) << '\n';
  else
    std::cout << "interrupting " << options.name << '\n';
  return kOk;
}

Result<int> logs(const JobsOptions& options) {
  if (options.follow && options.as_json) {
    return Error{Code::kInvalidArgument,
                 "--json is one document, and -f has no end: use one of them"};
  }
  ApiClient api{TRY(find_connection(options.data_folder))};
  if (!options.follow) {
    const LogForm form = options.as_json ? LogForm::kJson
                         : options.times ? LogForm::kTimedLines
                                         : LogForm::kLines;
    TRY(print_log(api, options.name, options.instance, form));
    return kOk;
  }
  FollowOptions follow;
  follow.instance = options.instance;
  return exit_code_for_job(TRY(follow_job(api, options.name, follow)));
}

Result<int> results(const JobsOptions& options) {
  ApiClient api{TRY(find_connection(options.data_folder))};
  const json::value job = TRY(
      api.call("SageMaker.DescribeTrainingJob", json::object{{"TrainingJobName", options.name}}));
  const auto store = objects::make_s3_client(s3_endpoint(api.connection()));
  const JobResults fetched = TRY(fetch_results(*store, job, options.folder));
  if (options.as_json)
    std::cout << pretty_json(results_json(fetched)) << '\n';
  else
    print_results(fetched);
  return kOk;
}

CLI::App* add_action(CLI::App& verb, Outcome& outcome, const char* name, const char* help,
                     const char* example, const std::shared_ptr<JobsOptions>& options,
                     Result<int> (*action)(const JobsOptions&)) {
  CLI::App* sub = verb.add_subcommand(name, help);
  sub->add_option("--data-dir", options->data_folder, "Data folder of the server");
  sub->add_flag("--json", options->as_json, "For scripts");
  sub->footer(std::string{"Example: "} + example);
  sub->callback([options, action, &outcome] {
    const Result<int> code = action(*options);
    outcome.exit_code = code ? *code : report_error(code.error());
  });
  return sub;
}

}  // namespace

void add_jobs(CLI::App& program, Outcome& outcome) {
  CLI::App* verb = program.add_subcommand("jobs", "Looks at and stops training jobs");
  verb->require_subcommand(1);
  verb->footer("Example: atelier jobs list --status Failed --data-dir ./data");
  auto options = std::make_shared<JobsOptions>();
  CLI::App* sub = add_action(*verb, outcome, "list", "Lists jobs, newest first",
                             "atelier jobs list --status Failed", options, list);
  sub->add_option("--status", options->status,
                  "InProgress, Completed, Failed, Stopping or Stopped");
  sub->add_option("--name", options->name, "Only names that contain this");
  sub->add_option("--limit", options->limit, "At most so many")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  sub = add_action(*verb, outcome, "show", "Shows one job",
                   "atelier jobs show fashion-2026-11-30-07-05-55-123", options, show);
  sub->add_option("name", options->name, "Job")->required();
  sub = add_action(
      *verb, outcome, "stop",
      "Stops a job; what it has is uploaded. Again while it is: the rest stays on the host",
      "atelier jobs stop NAME", options, stop);
  sub->add_option("name", options->name, "Job")->required();
  sub = add_action(*verb, outcome, "interrupt",
                   "Takes the instance from a managed spot job, with notice; it runs again when "
                   "there is room",
                   "atelier jobs interrupt NAME", options, interrupt);
  sub->add_option("name", options->name, "Job")->required();
  sub->add_option("--reason", options->reason, "Shown with the job's states");
  sub = add_action(*verb, outcome, "logs", "Prints a job's log", "atelier jobs logs -f NAME",
                   options, logs);
  sub->add_option("name", options->name, "Job")->required();
  sub->add_flag("-f,--follow", options->follow, "Until the job has ended");
  sub->add_option("--instance", options->instance,
                  "Of this one alone, such as algo-2 (default: all, each line with its instance)");
  sub->add_flag("--times", options->times, "With the time of each line");
  sub = add_action(*verb, outcome, "results",
                   "Fetches and shows what an image-classification job found out",
                   "atelier jobs results NAME --to ./results", options, results);
  sub->add_option("name", options->name, "Job")->required();
  sub->add_option("--to", options->folder,
                  "Folder for evaluation.json and pictures (made; files in it are kept)")
      ->required();
}

}  // namespace atelier::cli
