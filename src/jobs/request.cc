#include "jobs/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "jobs/request_instances.h"
#include "jobs/request_rules.h"

namespace atelier::jobs {
namespace {

// What a spot job that names no MaxWaitTimeInSeconds may wait beyond its MaxRuntimeInSeconds.
constexpr std::chrono::hours kDefaultWait{24};

Error invalid(std::string message) { return Error{Code::kInvalidArgument, std::move(message)}; }

const json::value& member(const json::value& value, std::string_view name) {
  static const json::value kAbsent;
  const json::value* found = find_member(value, name);
  return found == nullptr ? kAbsent : *found;
}

std::string text(const json::value& value, std::string_view name, std::string otherwise = {}) {
  return find_string(value, name).value_or(std::move(otherwise));
}

Result<std::string> required(const json::value& value, std::string_view name,
                             std::string_view path) {
  std::string found = text(value, name);
  if (found.empty()) return invalid(fmt::format("{} is missing", path));
  return found;
}

std::vector<std::string> texts(const json::value& value, std::string_view name) {
  std::vector<std::string> found;
  if (const json::array* array = find_array(value, name)) {
    for (const json::value& item : *array) {
      if (item.is_string()) found.emplace_back(item.get_string());
    }
  }
  return found;
}

Result<std::map<std::string, std::string>> text_map(const json::value& value,
                                                    std::string_view name) {
  std::map<std::string, std::string> found;
  const json::object* object = find_object(value, name);
  if (object == nullptr) return found;
  for (const auto& [key, item] : *object) {
    if (!item.is_string()) return invalid(fmt::format("{}.{} must be a string", name, key));
    found.emplace(key, item.get_string());
  }
  return found;
}

// The rule of the service model. Checked here again because the name becomes a folder.
bool good_name(std::string_view name) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= 63 && alphanumeric(name.front()) &&
         alphanumeric(name.back()) &&
         std::ranges::all_of(name, [&](char c) { return alphanumeric(c) || c == '-'; });
}

Result<agent::ChannelSpec> plan_channel(const json::value& channel, std::string_view job_mode,
                                        std::vector<std::string>& warnings) {
  agent::ChannelSpec spec;
  spec.name = TRY(required(channel, "ChannelName", "InputDataConfig[].ChannelName"));
  const json::value& s3 = member(member(channel, "DataSource"), "S3DataSource");
  spec.s3_uri = text(s3, "S3Uri");
  spec.s3_data_type = text(s3, "S3DataType", "S3Prefix");
  spec.groups = texts(s3, "InstanceGroupNames");
  spec.distribution = text(s3, "S3DataDistributionType", "FullyReplicated");
  spec.content_type = text(channel, "ContentType");
  spec.record_wrapper = text(channel, "RecordWrapperType", "None");
  spec.compression = text(channel, "CompressionType", "None");
  spec.attribute_names = texts(s3, "AttributeNames");
  if (!spec.attribute_names.empty() && spec.s3_data_type != "AugmentedManifestFile") {
    warnings.push_back(fmt::format("channel '{}': AttributeNames has no effect with {}.", spec.name,
                                   spec.s3_data_type));
  }
  spec.shuffle_seed = find_int(member(channel, "ShuffleConfig"), "Seed");
  if (text(channel, "InputMode", std::string{job_mode}) == "FastFile") {
    warnings.push_back(
        fmt::format("channel '{}': FastFile is not served yet; the objects are copied before the "
                    "start, to the same paths.",
                    spec.name));
  }
  return spec;
}

Result<void> plan_channels(const json::value& request, Plan& plan) {
  const std::string mode =
      text(member(request, "AlgorithmSpecification"), "TrainingInputMode", "File");
  if (const json::array* channels = find_array(request, "InputDataConfig")) {
    for (const json::value& channel : *channels) {
      plan.spec.channels.push_back(TRY(plan_channel(channel, mode, plan.warnings)));
    }
  }
  return {};
}

// What SageMaker's image-classification algorithm reports under these names; the lines are those
// that atelier-vision and the original print. Only of channels that are there: a definition that
// never matches is warned about. With several labels a picture there is an F1 in the place of
// top-k.
std::vector<agent::MetricDefinition> image_classification_metrics(
    const std::vector<agent::ChannelSpec>& channels, bool multi_label) {
  const std::string number = "=([0-9.eE+-]+)";
  std::vector<agent::MetricDefinition> metrics = {{"train:accuracy", "Train-accuracy" + number},
                                                  {"train:loss", "Train-loss" + number}};
  const auto has = [&](std::string_view name) {
    return std::ranges::find(channels, name, &agent::ChannelSpec::name) != channels.end();
  };
  if (has("validation")) {
    metrics.push_back({"validation:accuracy", "Validation-accuracy" + number});
    metrics.push_back(multi_label
                          ? agent::MetricDefinition{"validation:f1", "Validation-f1" + number}
                          : agent::MetricDefinition{"validation:top_k_accuracy",
                                                    "Validation-top_k_accuracy_[0-9]+" + number});
    metrics.push_back({"validation:loss", "Validation-loss" + number});
  }
  if (has("test")) {
    metrics.push_back({"test:accuracy", "Test-accuracy" + number});
    metrics.push_back(multi_label ? agent::MetricDefinition{"test:f1", "Test-f1" + number}
                                  : agent::MetricDefinition{"test:top_k_accuracy",
                                                            "Test-top_k_accuracy_[0-9]+" + number});
  }
  return metrics;
}

Result<void> plan_algorithm(const json::value& request, const PlanContext& context, Plan& plan) {
  const json::value& algorithm = member(request, "AlgorithmSpecification");
  const std::string image =
      TRY(required(algorithm, "TrainingImage", "AlgorithmSpecification.TrainingImage"));
  plan.spec.runtime = TRY(compute::find_runtime(context.runtimes, image));
  if (!plan.spec.runtime.note.empty()) plan.warnings.push_back(plan.spec.runtime.note);
  plan.spec.container_entrypoint = texts(algorithm, "ContainerEntrypoint");
  plan.spec.container_arguments = texts(algorithm, "ContainerArguments");

  std::vector<agent::MetricDefinition>& metrics = plan.spec.metrics;
  if (const json::array* definitions = find_array(algorithm, "MetricDefinitions")) {
    for (const json::value& definition : *definitions) {
      metrics.push_back({text(definition, "Name"), text(definition, "Regex")});
    }
  }
  if (plan.spec.runtime.kind == compute::RuntimeKind::kBuiltIn) {
    // As estimators send it: 1, "1", True or true.
    const std::string several = text(member(request, "HyperParameters"), "multi_label");
    const bool multi_label = several.find_first_of("1Tt") != std::string::npos;
    for (agent::MetricDefinition& definition :
         image_classification_metrics(plan.spec.channels, multi_label)) {
      // A user's own definition of the name is the one that counts.
      if (std::ranges::find(metrics, definition.name, &agent::MetricDefinition::name) ==
          metrics.end()) {
        metrics.push_back(std::move(definition));
      }
    }
  }
  return {};
}

Result<void> plan_resources(const json::value& request, const PlanContext& context, Plan& plan) {
  InstancesPlan instances =
      TRY(plan_instances(member(request, "ResourceConfig"), context.instances, context.host));
  plan.allocation = std::move(instances.total);
  plan.warnings.insert(plan.warnings.end(), plan.allocation.warnings.begin(),
                       plan.allocation.warnings.end());
  const agent::InstanceSpec& first = instances.instances.front();
  plan.spec.instance_type = first.instance_type;
  plan.spec.vcpus = first.vcpus;
  plan.spec.memory_gib = first.memory_gib;
  plan.spec.gpus = first.gpus;
  plan.terms.instance_type = first.instance_type;
  plan.terms.instance_count = static_cast<int>(instances.instances.size());
  plan.terms.price_per_hour = instances.price_per_hour;
  plan.terms.spot_price_per_hour = instances.spot_price_per_hour;
  plan.terms.currency = context.instances.currency;
  plan.spec.instances = std::move(instances.instances);
  plan.keep_alive = keep_alive_of(request);
  plan.spec.volume_gib =
      static_cast<int>(find_int(member(request, "ResourceConfig"), "VolumeSizeInGB").value_or(0));
  return {};
}

void plan_stopping(const json::value& request, Plan& plan) {
  const json::value& stopping = member(request, "StoppingCondition");
  const std::int64_t run = find_int(stopping, "MaxRuntimeInSeconds").value_or(86400);
  plan.spec.max_runtime = std::chrono::seconds{run};
  plan.terms.max_runtime = plan.spec.max_runtime;
  const auto wait = find_int(stopping, "MaxWaitTimeInSeconds");
  const bool spot = find_bool(request, "EnableManagedSpotTraining").value_or(false);
  plan.terms.spot = spot;
  if (spot) {
    plan.terms.max_wait =
        wait ? std::chrono::seconds{*wait} : plan.terms.max_runtime + kDefaultWait;
    if (!wait) {
      plan.warnings.push_back(
          fmt::format("StoppingCondition.MaxWaitTimeInSeconds is not given: {} is used, which is "
                      "MaxRuntimeInSeconds and a day.",
                      plan.terms.max_wait.count()));
    }
    if (plan.terms.price_per_hour > 0 &&
        plan.terms.spot_price_per_hour >= plan.terms.price_per_hour) {
      plan.warnings.push_back(fmt::format(
          "Managed spot training saves nothing: the instance table has no spot price of {} "
          "(spot_price_per_hour in instances.toml).",
          plan.terms.instance_type));
    }
    if (find_object(request, "CheckpointConfig") == nullptr) {
      plan.warnings.emplace_back(
          "Managed spot training without CheckpointConfig: after an interruption the job starts "
          "over.");
    }
  }
  plan.terms.max_retries = static_cast<int>(
      find_int(member(request, "RetryStrategy"), "MaximumRetryAttempts").value_or(0));
}

// Where a job's folder of outputs goes below: of "s3://b/x//" that is "s3://b/x/JOB", for the
// upload as for the policy and for what Describe says.
std::string without_last_slashes(std::string uri) {
  while (uri.ends_with('/')) uri.pop_back();
  return uri;
}

Result<void> plan_output(const json::value& request, Plan& plan) {
  const json::value& output = member(request, "OutputDataConfig");
  const std::string uri =
      without_last_slashes(TRY(required(output, "S3OutputPath", "OutputDataConfig.S3OutputPath")));
  plan.spec.output_s3_uri = uri;
  plan.spec.compress_output = text(output, "CompressionType", "GZIP") != "NONE";
  plan.model_uri = fmt::format("{}/{}/output/{}", uri, plan.spec.job_name,
                               plan.spec.compress_output ? "model.tar.gz" : "model/");
  if (!text(output, "KmsKeyId").empty()) {
    plan.warnings.emplace_back("OutputDataConfig.KmsKeyId: the output is not encrypted with it.");
  }
  return {};
}

// A folder that is copied to S3: nothing when the request does not have it.
std::optional<agent::SyncedFolder> plan_synced(const json::value& request, std::string_view name,
                                               std::string_view uri_name,
                                               std::string_view local_path) {
  const json::value& config = member(request, name);
  if (!config.is_object()) return std::nullopt;
  return agent::SyncedFolder{text(config, uri_name),
                             text(config, "LocalPath", std::string{local_path})};
}

// Files of /opt/ml/input/config that are parts of the request, as real jobs have them. (Of
// init-config.json and upstreamoutputdataconfig.json only the names are known.)
void plan_config_files(const json::value& request, agent::AgentSpec& spec) {
  spec.config_files["trainingjobconfig.json"] = json::serialize(request);
  constexpr std::array<std::array<const char*, 3>, 2> kParts = {{
      {"DebugHookConfig", "debughookconfig.json", "/opt/ml/output/tensors"},
      {"ProfilerConfig", "profilerconfig.json", "/opt/ml/output/profiler"},
  }};
  for (const auto& [name, file, local_path] : kParts) {
    const json::object* part = find_object(request, name);
    if (part == nullptr) continue;
    json::object config = *part;
    if (!config.contains("LocalPath")) config["LocalPath"] = local_path;
    spec.config_files[file] = json::serialize(config);
  }
}

void warn_about_the_rest(const json::value& request, std::vector<std::string>& warnings) {
  for (const char* rules : {"DebugRuleConfigurations", "ProfilerRuleConfigurations"}) {
    const json::array* list = find_array(request, rules);
    if (list != nullptr && !list->empty()) {
      warnings.push_back(fmt::format("{}: rules are not evaluated yet.", rules));
    }
  }
}

}  // namespace

Result<Plan> plan_job(std::string_view request_json, const PlanContext& context, Time created) {
  const json::value request = TRY(parse_json(request_json));
  Plan plan;
  agent::AgentSpec& spec = plan.spec;
  spec.job_name = TRY(required(request, "TrainingJobName", "TrainingJobName"));
  if (!good_name(spec.job_name)) {
    return invalid(
        fmt::format("TrainingJobName '{}' must be 1 to 63 letters, digits and hyphens, "
                    "with a letter or digit at both ends",
                    spec.job_name));
  }
  TRY(check_request(request));
  spec.job_arn = fmt::format("arn:aws:sagemaker:{}:{}:training-job/{}", context.region,
                             context.account, spec.job_name);
  spec.region = context.region;
  spec.log_stream =
      fmt::format("{}/algo-1-{}", spec.job_name, to_epoch_milliseconds(created) / 1000);
  TRY(plan_channels(request, plan));
  TRY(plan_algorithm(request, context, plan));
  TRY(plan_resources(request, context, plan));
  plan_stopping(request, plan);
  TRY(plan_output(request, plan));
  spec.checkpoints = plan_synced(request, "CheckpointConfig", "S3Uri", "/opt/ml/checkpoints");
  spec.tensorboard =
      plan_synced(request, "TensorBoardOutputConfig", "S3OutputPath", "/opt/ml/output/tensorboard");
  if (spec.tensorboard) {
    spec.tensorboard->s3_uri = without_last_slashes(std::move(spec.tensorboard->s3_uri));
  }
  spec.hyperparameters = TRY(text_map(request, "HyperParameters"));
  spec.environment = TRY(text_map(request, "Environment"));
  spec.network_isolation = find_bool(request, "EnableNetworkIsolation").value_or(false);
  spec.infra_check =
      find_bool(member(request, "InfraCheckConfig"), "EnableInfraCheck").value_or(false);
  plan_config_files(request, spec);
  warn_about_the_rest(request, plan.warnings);
  return plan;
}

std::chrono::seconds keep_alive_of(const json::value& request) {
  return std::chrono::seconds{
      find_int(member(request, "ResourceConfig"), "KeepAlivePeriodInSeconds").value_or(0)};
}

void grant(Plan& plan, double vcpus, double memory_gib, int gpus) {
  const double cpu_part = plan.allocation.vcpus > 0 ? vcpus / plan.allocation.vcpus : 1;
  const double memory_part =
      plan.allocation.memory_gib > 0 ? memory_gib / plan.allocation.memory_gib : 1;
  for (agent::InstanceSpec& instance : plan.spec.instances) {
    instance.vcpus *= cpu_part;
    instance.memory_gib *= memory_part;
  }
  plan.spec.vcpus *= cpu_part;
  plan.spec.memory_gib *= memory_part;
  int left = gpus;
  for (agent::InstanceSpec& instance : plan.spec.instances) {
    instance.gpus = std::min(instance.gpus, left);
    left -= instance.gpus;
  }
  plan.spec.gpus = plan.spec.instances.empty() ? gpus : plan.spec.instances.front().gpus;
}

}  // namespace atelier::jobs
