#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "cli/connection.h"
#include "cli/follow.h"
#include "cli/job_file.h"
#include "cli/job_view.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace atelier::cli {
namespace {

struct TrainOptions {
  std::string file;
  std::string data_folder;
  std::string name, algorithm, script, source, instance, output;
  std::vector<std::string> channels;         // NAME=URI
  std::vector<std::string> hyperparameters;  // NAME=VALUE
  long max_runtime = 0;
  bool detach = false;
  bool dry_run = false;
  bool as_json = false;
};

std::atomic<bool> interrupted{false};

Result<void> set_pairs(const std::vector<std::string>& pairs,
                       std::map<std::string, std::string>& into, std::string_view option) {
  for (const std::string& pair : pairs) {
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return Error{Code::kInvalidArgument,
                   fmt::format("{} {}: write it as NAME=VALUE", option, pair)};
    }
    into[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return {};
}

Result<JobDescription> describe_job(const TrainOptions& options) {
  JobDescription job;
  if (!options.file.empty()) {
    const std::string text = TRY(read_file(options.file, std::size_t{1} << 20));
    Result<JobDescription> parsed = parse_job_file(text);
    if (!parsed) return parsed.error().within(options.file);
    job = std::move(*parsed);
    // A script in a job file is meant from where the file is.
    if (!job.script.empty() && job.source.empty())
      job.source = std::filesystem::path{options.file}.parent_path();
    else if (job.source.is_relative() && !job.source.empty())
      job.source = std::filesystem::path{options.file}.parent_path() / job.source;
  }
  if (!options.name.empty()) job.name = options.name;
  if (!options.algorithm.empty()) job.algorithm = options.algorithm;
  if (!options.script.empty()) {
    const std::filesystem::path script{options.script};
    job.source = script.parent_path();
    job.script = script.filename();
  }
  if (!options.source.empty()) {
    job.source = options.source;
    job.script = options.script.empty() ? job.script : std::filesystem::path{options.script};
  }
  if (!options.instance.empty()) job.instance = options.instance;
  if (!options.output.empty()) job.output = options.output;
  if (options.max_runtime > 0) job.max_runtime = options.max_runtime;
  TRY(set_pairs(options.channels, job.channels, "--channel"));
  TRY(set_pairs(options.hyperparameters, job.hyperparameters, "--hyperparameter"));
  if (job.source.empty() && !job.script.empty()) job.source = ".";
  return job;
}

// Packs and uploads a script's folder; returns where it lies.
Result<std::string> stage_source(objects::ObjectStore& store, const JobDescription& job,
                                 const std::string& bucket, const std::string& name) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(job.source / job.script, ignored)) {
    return Error{Code::kNotFound, fmt::format("the script '{}' is not in '{}'", job.script.string(),
                                              job.source.string())};
  }
  const TempFolder folder = TRY(TempFolder::create());
  const std::filesystem::path archive = folder.path() / "sourcedir.tar.gz";
  TRY(pack_source(job.source, archive));
  const objects::Location at{bucket, name + "/source/sourcedir.tar.gz"};
  TRY(store.put_file(at.bucket, at.key, archive, {}, {}));
  return at.uri();
}

Result<int> train(const TrainOptions& options) {
  const JobDescription job = TRY(describe_job(options));
  std::string name = job_name(job, system_clock().now());
  const std::string bucket = fmt::format("sagemaker-{}-{}", kDefaultRegion, kAccount);
  const std::string default_output = fmt::format("s3://{}/", bucket);
  if (options.dry_run) {
    std::cout << pretty_json(TRY(
                     create_request(job, name, default_output,
                                    "s3://" + bucket + "/" + name + "/source/sourcedir.tar.gz")))
              << '\n';
    return kOk;
  }
  ApiClient api{TRY(find_connection(options.data_folder))};
  const auto store = objects::make_s3_client(s3_endpoint(api.connection()));
  TRY(store->create_bucket(bucket));
  std::string source_uri;
  if (!job.script.empty()) source_uri = TRY(stage_source(*store, job, bucket, name));
  const json::value request = TRY(create_request(job, name, default_output, source_uri));
  name = find_string(request, "TrainingJobName").value_or(name);
  TRY(store->create_bucket(
      TRY(objects::parse_s3_uri(
              find_string(request.at("OutputDataConfig"), "S3OutputPath").value_or(default_output)))
          .bucket));
  const json::value created = TRY(api.call("SageMaker.CreateTrainingJob", request));
  if (options.detach) {
    if (options.as_json)
      std::cout << pretty_json(
                       json::object{{"name", name},
                                    {"arn", find_string(created, "TrainingJobArn").value_or("")}})
                << '\n';
    else
      std::cout << name << '\n';
    return kOk;
  }
  if (!options.as_json) std::cout << styled(name, Style::kBold, colour_on_stdout()) << '\n';
  std::signal(SIGINT, [](int) { interrupted = true; });
  FollowOptions follow;
  follow.quiet = options.as_json;
  follow.interrupted = [] { return interrupted.load(); };
  const json::value ended = TRY(follow_job(api, name, follow));
  if (interrupted) {
    std::cerr << fmt::format(
        "\nthe job goes on. Watch it: atelier jobs logs -f {0}   Stop it: atelier jobs stop {0}\n",
        name);
    return 130;
  }
  if (options.as_json)
    std::cout << pretty_json(ended) << '\n';
  else
    print_job_summary(ended);
  return exit_code_for_job(ended);
}

}  // namespace

void add_train(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* verb = program.add_subcommand("train", "Runs a training job and shows it live");
  verb->add_option("file", options->file, "Job file (YAML); flags win over it");
  verb->add_option("--data-dir", options->data_folder, "Data folder of the server");
  verb->add_option("--name", options->name, "Name; a time is appended");
  verb->add_option("--algorithm", options->algorithm, "image-classification");
  verb->add_option("--script", options->script,
                   "A Python script, run as the SageMaker toolkit runs it");
  verb->add_option("--source", options->source,
                   "Folder that holds the script (default: where it is)");
  verb->add_option("-c,--channel", options->channels, "NAME=s3://..., again for more");
  verb->add_option("-p,--hyperparameter", options->hyperparameters, "NAME=VALUE, again for more");
  verb->add_option("--instance", options->instance, "Instance type (default ml.m5.large)");
  verb->add_option("--output", options->output, "s3://... for the model");
  verb->add_option("--max-runtime", options->max_runtime, "Seconds after which the job is stopped");
  verb->add_flag("--detach", options->detach, "Print the job's name and return");
  verb->add_flag("--dry-run", options->dry_run,
                 "Print the CreateTrainingJob request and send nothing");
  verb->add_flag("--json", options->as_json,
                 "For scripts: the job's description once it has ended");
  verb->footer("Example: atelier train examples/fashion.yaml -p epochs=4 --data-dir ./data");
  verb->callback([options, &outcome] {
    const Result<int> code = train(*options);
    outcome.exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace atelier::cli
