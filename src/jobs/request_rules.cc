// What the service model cannot say about a CreateTrainingJob request.
//
// A member that cannot be honoured is refused by name when it would change what the job computes or
// leaves behind; one that would not is kept, shown by DescribeTrainingJob, and noted in the job's
// first status message. Nothing is dropped in silence.
#include "jobs/request_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

#include "agent/local_path.h"
#include "base/json.h"
#include "jobs/request_instances.h"

namespace atelier::jobs {
namespace {

constexpr std::int64_t kDefaultMaxRuntime = 86400;

struct Findings {
  std::vector<std::string> wrong;     // no SageMaker would take it
  std::vector<std::string> unserved;  // this version cannot do it
};

const json::value& member(const json::value& object, std::string_view name) {
  static const json::value kAbsent;
  const json::value* value = find_member(object, name);
  return value != nullptr ? *value : kAbsent;
}

std::string text(const json::value& object, std::string_view name) {
  return find_string(object, name).value_or("");
}

bool has_any(const json::value& object, std::string_view name) {
  const json::value& value = member(object, name);
  if (value.is_array()) return !value.get_array().empty();
  if (value.is_object()) return !value.get_object().empty();
  return !value.is_null();
}

bool is_s3_uri(std::string_view uri) {
  constexpr std::string_view kScheme = "s3://";
  return uri.starts_with(kScheme) && uri.size() > kScheme.size() && uri[kScheme.size()] != '/';
}

void check_algorithm(const json::value& request, Findings& found) {
  const json::value& algorithm = member(request, "AlgorithmSpecification");
  const std::string image = text(algorithm, "TrainingImage");
  const std::string name = text(algorithm, "AlgorithmName");
  if (image.empty() == name.empty()) {
    found.wrong.emplace_back(
        "Invalid AlgorithmSpecification. Exactly one of TrainingImage and AlgorithmName must be "
        "specified");
  } else if (!name.empty()) {
    found.unserved.push_back(fmt::format(
        "AlgorithmSpecification.AlgorithmName '{}': there are no algorithm resources or "
        "Marketplace subscriptions here; name a TrainingImage",
        name));
  }
}

void check_data_type(const std::string& where, const json::value& source, Findings& found) {
  const std::string type = text(source, "S3DataType");
  const bool augmented = type == "AugmentedManifestFile";
  if (type == "Converse") {
    found.unserved.push_back(
        fmt::format("{}.DataSource.S3DataSource.S3DataType 'Converse': S3Prefix, ManifestFile and "
                    "AugmentedManifestFile are read",
                    where));
  }
  if (augmented && !has_any(source, "AttributeNames")) {
    found.wrong.push_back(fmt::format(
        "{}.DataSource.S3DataSource.AttributeNames must be specified with AugmentedManifestFile",
        where));
  }
}

void check_s3_source(const std::string& where, const json::value& source, Findings& found) {
  const std::string uri = text(source, "S3Uri");
  if (!is_s3_uri(uri)) {
    found.wrong.push_back(fmt::format(
        "{}.DataSource.S3DataSource.S3Uri '{}' is not of the form s3://bucket/prefix", where, uri));
  }
  check_data_type(where, source, found);
  for (const std::string_view access : {"ModelAccessConfig", "HubAccessConfig"}) {
    if (has_any(source, access)) {
      found.unserved.push_back(
          fmt::format("{}.DataSource.S3DataSource.{}: there is no model hub here", where, access));
    }
  }
}

void check_source(const std::string& where, const json::value& source, Findings& found) {
  constexpr std::string_view kSources[] = {"S3DataSource", "FileSystemDataSource", "DatasetSource"};
  const auto given = std::ranges::count_if(
      kSources, [&](std::string_view name) { return !member(source, name).is_null(); });
  if (given != 1) {
    found.wrong.push_back(
        fmt::format("{}.DataSource must have exactly one of S3DataSource, FileSystemDataSource and "
                    "DatasetSource; it has {}",
                    where, given));
    return;
  }
  if (const json::value& s3 = member(source, "S3DataSource"); !s3.is_null()) {
    check_s3_source(where, s3, found);
  } else if (const json::value& files = member(source, "FileSystemDataSource"); !files.is_null()) {
    found.unserved.push_back(
        fmt::format("{}.DataSource.FileSystemDataSource '{}': file systems can not be mounted yet; "
                    "give the data as an S3DataSource",
                    where, text(files, "FileSystemId")));
  } else {
    found.unserved.push_back(
        fmt::format("{}.DataSource.DatasetSource: there is no dataset hub here", where));
  }
}

// What a program or a file system would take for the end of a text. `path`: where `value` is.
void check_zero_characters(const json::value& value, const std::string& path, Findings& found) {
  const auto check = [&](std::string_view words, std::string_view what) {
    const std::size_t at = words.find('\0');
    if (at == std::string_view::npos) return;
    found.wrong.push_back(fmt::format(
        "{} of {} has a zero character at byte {}, where programs would take it for ended", what,
        path.empty() ? "the request" : path, at));
  };
  if (value.is_string()) check(value.get_string(), "the value");
  if (value.is_array()) {
    for (const json::value& element : value.get_array())
      check_zero_characters(element, path, found);
  }
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.get_object()) {
    const std::string_view name = key;
    check(name, fmt::format("the name '{}'", name.substr(0, name.find('\0'))));
    check_zero_characters(
        member, path.empty() ? std::string{name} : fmt::format("{}.{}", path, name), found);
  }
}

void check_channel(const json::value& channel, const std::string& job_mode, Findings& found) {
  const std::string where =
      fmt::format("InputDataConfig channel '{}'", text(channel, "ChannelName"));
  check_source(where, member(channel, "DataSource"), found);
  const std::string mode = find_string(channel, "InputMode").value_or(job_mode);
  if (mode == "Pipe") {  // FastFile is served by a copy at the same paths, with a note by jobs/
    found.unserved.push_back(
        fmt::format("{}: input mode 'Pipe': only File and FastFile are served", where));
  }
  const std::string type =
      text(member(member(channel, "DataSource"), "S3DataSource"), "S3DataType");
  if (mode == "FastFile" && type.ends_with("ManifestFile")) {
    found.wrong.push_back(fmt::format("{}: FastFile mode reads an S3Prefix, not {}", where, type));
  }
  // As SageMaker has it: in the other modes a program gets its objects as they are.
  const auto pipe_only = [&](std::string_view name, std::string_view instead) {
    const std::string value = find_string(channel, name).value_or("None");
    if (value == "None") return;
    (mode == "Pipe" ? found.unserved : found.wrong)
        .push_back(fmt::format("{}: {} '{}' works in Pipe mode only; leave it unset or None in {} "
                               "mode, where the program finds each object as it is in S3, and {}",
                               where, name, value, mode, instead));
  };
  pipe_only("CompressionType", "decompress it there");
  pipe_only("RecordWrapperType", "read it without records around it");
}

void check_channels(const json::value& request, Findings& found) {
  const json::array* channels = find_array(request, "InputDataConfig");
  if (channels == nullptr) return;
  const std::string mode = text(member(request, "AlgorithmSpecification"), "TrainingInputMode");
  std::set<std::string> names;
  for (const json::value& channel : *channels) {
    const std::string name = text(channel, "ChannelName");
    if (!names.insert(name).second) {
      found.wrong.push_back(
          fmt::format("Duplicate channel name '{}' in InputDataConfig. Channel names must be "
                      "unique",
                      name));
    }
    if (name == "." || name == "..") {
      found.wrong.push_back(fmt::format(
          "InputDataConfig channel '{}': it becomes a folder of that name; give it another", name));
    }
    check_channel(channel, mode, found);
  }
  // The manifest of channel "a" becomes the file a-manifest beside the folders of the channels.
  for (const json::value& channel : *channels) {
    const std::string name = text(channel, "ChannelName");
    const json::value& source = member(member(channel, "DataSource"), "S3DataSource");
    if (text(source, "S3DataType").ends_with("ManifestFile") &&
        names.contains(name + "-manifest")) {
      found.wrong.push_back(fmt::format(
          "InputDataConfig channel '{0}-manifest': the manifest of channel '{0}' has that name",
          name));
    }
  }
}

void check_resources(const json::value& request, Findings& found) {
  if (has_any(member(request, "ResourceConfig"), "InstancePreferences")) {
    found.unserved.emplace_back(
        "ResourceConfig.InstancePreferences: no other type is tried; give InstanceType and "
        "InstanceCount, or InstanceGroups");
    return;
  }
  for (std::string& words : instance_mistakes(request)) found.wrong.push_back(std::move(words));
  const auto keep_alive =
      find_int(member(request, "ResourceConfig"), "KeepAlivePeriodInSeconds").value_or(0);
  if (keep_alive > 0 && find_bool(request, "EnableManagedSpotTraining").value_or(false)) {
    found.wrong.emplace_back(
        "Invalid KeepAlivePeriodInSeconds. It is not supported when EnableManagedSpotTraining is "
        "set to true: a spot job gives its instances back");
  }
}

void check_stopping(const json::value& request, Findings& found) {
  const json::value& condition = member(request, "StoppingCondition");
  const std::optional<std::int64_t> wait = find_int(condition, "MaxWaitTimeInSeconds");
  if (!wait) return;
  const std::int64_t runtime =
      find_int(condition, "MaxRuntimeInSeconds").value_or(kDefaultMaxRuntime);
  if (!find_bool(request, "EnableManagedSpotTraining").value_or(false)) {
    found.wrong.emplace_back(
        "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set "
        "to true");
  } else if (*wait < runtime) {
    found.wrong.push_back(fmt::format(
        "Invalid MaxWaitTimeInSeconds. It must be equal to or greater than MaxRuntimeInSeconds: "
        "{} is less than {}",
        *wait, runtime));
  }
}

void check_request_tags(const json::value& request, Findings& found) {
  const json::array* tags = find_array(request, "Tags");
  if (tags == nullptr) return;
  if (const Result<void> fine = check_tags(*tags); !fine) {
    found.wrong.push_back(fine.error().message);
  }
}

// Rules may end a job; without rules such a job would run on.
void check_rules(const json::value& request, std::string_view name, Findings& found) {
  const json::array* rules = find_array(request, name);
  if (rules == nullptr) return;
  for (const json::value& rule : *rules) {
    if (!member(member(rule, "RuleParameters"), "action_json").is_null()) {
      found.unserved.push_back(fmt::format(
          "{} rule '{}': rules are not evaluated yet, so its action would never be taken", name,
          text(rule, "RuleConfigurationName")));
    }
  }
}

// A folder that is copied to S3 while the job runs.
void check_synced(const json::value& request, std::string_view name, std::string_view uri_name,
                  Findings& found) {
  const json::value& config = member(request, name);
  if (!config.is_object()) return;
  const std::string uri = text(config, uri_name);
  if (!is_s3_uri(uri)) {
    found.wrong.push_back(
        fmt::format("{}.{} '{}' is not of the form s3://bucket/prefix", name, uri_name, uri));
  }
  const std::optional<std::string> path = find_string(config, "LocalPath");
  if (!path) return;
  const Result<agent::LocalPath> place = agent::place_local_path(*path);
  if (!place) found.wrong.push_back(fmt::format("{}.LocalPath {}", name, place.error().message));
}

void check_outputs(const json::value& request, Findings& found) {
  const std::string output = text(member(request, "OutputDataConfig"), "S3OutputPath");
  if (!is_s3_uri(output)) {
    found.wrong.push_back(fmt::format(
        "OutputDataConfig.S3OutputPath '{}' is not of the form s3://bucket/prefix", output));
  }
  check_synced(request, "CheckpointConfig", "S3Uri", found);
  check_synced(request, "TensorBoardOutputConfig", "S3OutputPath", found);
  constexpr std::pair<std::string_view, std::string_view> kUnserved[] = {
      {"ServerlessJobConfig", "there are no serverless jobs here"},
      {"ModelPackageConfig", "there is no model registry here"},
      {"MlflowConfig", "there is no MLflow server here"},
  };
  for (const auto& [name, reason] : kUnserved) {
    if (!member(request, name).is_null()) {
      found.unserved.push_back(fmt::format("{}: {}", name, reason));
    }
  }
}

// Members that the job acts on, that SDKs send without meaning anything by them, or that jobs/
// warns about itself (spot, the output's key, rules, retries). A path leads through lists without a
// number.
constexpr std::string_view kActedOn[] = {
    "AlgorithmSpecification.ContainerArguments",
    "AlgorithmSpecification.ContainerEntrypoint",
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries",
    "AlgorithmSpecification.MetricDefinitions",
    "AlgorithmSpecification.TrainingImage",
    "AlgorithmSpecification.TrainingInputMode",
    "CheckpointConfig.LocalPath",
    "CheckpointConfig.S3Uri",
    "DebugHookConfig.HookParameters",
    "DebugHookConfig.LocalPath",
    "DebugHookConfig.S3OutputPath",
    "DebugRuleConfigurations",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "EnableNetworkIsolation",
    "Environment",
    "HyperParameters",
    "InfraCheckConfig",
    "InputDataConfig.ChannelName",
    "InputDataConfig.CompressionType",
    "InputDataConfig.ContentType",
    "InputDataConfig.DataSource.S3DataSource.AttributeNames",
    "InputDataConfig.DataSource.S3DataSource.InstanceGroupNames",
    "InputDataConfig.DataSource.S3DataSource.S3DataDistributionType",
    "InputDataConfig.DataSource.S3DataSource.S3DataType",
    "InputDataConfig.DataSource.S3DataSource.S3Uri",
    "InputDataConfig.InputMode",
    "InputDataConfig.RecordWrapperType",
    "OutputDataConfig.CompressionType",
    "OutputDataConfig.KmsKeyId",
    "OutputDataConfig.S3OutputPath",
    "ProfilerConfig.DisableProfiler",
    "ProfilerConfig.S3OutputPath",
    "ProfilerRuleConfigurations",
    "ResourceConfig.InstanceCount",
    "ResourceConfig.InstanceGroups",
    "ResourceConfig.InstanceType",
    "ResourceConfig.KeepAlivePeriodInSeconds",
    "ResourceConfig.VolumeSizeInGB",
    "RetryStrategy",
    "RoleArn",
    "StoppingCondition.MaxRuntimeInSeconds",
    "StoppingCondition.MaxWaitTimeInSeconds",
    "Tags",
    "TensorBoardOutputConfig.LocalPath",
    "TensorBoardOutputConfig.S3OutputPath",
    "TrainingJobName",
};

// Structures whose members are judged one by one.
constexpr std::string_view kOpened[] = {
    "AlgorithmSpecification",
    "CheckpointConfig",
    "DebugHookConfig",
    "InputDataConfig",
    "InputDataConfig.DataSource",
    "InputDataConfig.DataSource.S3DataSource",
    "OutputDataConfig",
    "ProfilerConfig",
    "ResourceConfig",
    "StoppingCondition",
    "TensorBoardOutputConfig",
};

// Why a member that is kept and shown has no effect, where that can be said better than in general.
constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
    {"AlgorithmSpecification.TrainingImageConfig", "no registry is asked for the image"},
    {"DebugHookConfig.CollectionConfigurations", "tensors are not uploaded yet"},
    {"ExperimentConfig", "there is no experiment tracker"},
    {"InputDataConfig.ShuffleConfig",
     "copied files have no order; only with ShardedByS3Key it decides which instance gets what"},
    {"ProfilerConfig.ProfilingIntervalInMilliseconds", "jobs are not profiled yet"},
    {"ProfilerConfig.ProfilingParameters", "jobs are not profiled yet"},
    {"ResourceConfig.TrainingPlanArn", "capacity is not reserved"},
    {"ResourceConfig.VolumeKmsKeyId", "the disk is this machine's"},
    {"StoppingCondition.MaxPendingTimeInSeconds",
     "a job waits for the machine as long as it takes"},
    {"VpcConfig", "the job uses this machine's network"},
};

static_assert(std::ranges::is_sorted(kActedOn) && std::ranges::is_sorted(kOpened));

bool contains(std::span<const std::string_view> sorted, std::string_view path) {
  return std::ranges::binary_search(sorted, path);
}

// False, 0 members, no text: such a value asks for nothing.
bool asks_for_nothing(const json::value& value) {
  if (value.is_object()) {
    return std::ranges::all_of(value.get_object(),
                               [](const auto& field) { return asks_for_nothing(field.value()); });
  }
  if (value.is_array()) return value.get_array().empty();
  if (value.is_string()) return value.get_string().empty();
  return value.is_null() || (value.is_bool() && !value.get_bool());
}

// `path`: where `object` is, as room for the paths of its members too.
void add_notes(const json::value& object, std::string& path, std::vector<std::string>& notes) {
  const std::size_t length = path.size();
  for (const auto& [name, value] : object.get_object()) {
    path.resize(length);
    if (length > 0) path += '.';
    path += std::string_view{name};
    if (asks_for_nothing(value) || contains(kActedOn, path)) continue;
    if (contains(kOpened, path) && value.is_object()) {
      add_notes(value, path, notes);
      continue;
    }
    if (contains(kOpened, path) && value.is_array()) {
      for (const json::value& element : value.get_array()) add_notes(element, path, notes);
      continue;
    }
    const auto* reason =
        std::ranges::find(kReasons, path, [](const auto& row) { return row.first; });
    std::string note =
        fmt::format("{} has no effect: {}", path,
                    reason != std::end(kReasons) ? reason->second
                                                 : "this version of Atelier does not act on it");
    if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
  }
  path.resize(length);
}

}  // namespace

Result<void> check_request(const json::value& request) {
  Findings found;
  check_zero_characters(request, "", found);
  check_algorithm(request, found);
  check_channels(request, found);
  check_resources(request, found);
  check_stopping(request, found);
  check_outputs(request, found);
  check_request_tags(request, found);
  check_rules(request, "DebugRuleConfigurations", found);
  check_rules(request, "ProfilerRuleConfigurations", found);
  if (!found.wrong.empty()) {
    return Error{Code::kInvalidArgument, fmt::format("{}", fmt::join(found.wrong, "; "))};
  }
  if (!found.unserved.empty()) {
    return Error{Code::kUnimplemented, fmt::format("This version of Atelier can not honour: {}",
                                                   fmt::join(found.unserved, "; "))};
  }
  return {};
}

Result<void> check_tags(const json::array& tags) {
  std::set<std::string> keys;
  for (const json::value& tag : tags) {
    const std::string key = text(tag, "Key");
    if (key.starts_with("aws:")) {
      return Error{Code::kInvalidArgument,
                   fmt::format("Tag key '{}' in Tags: keys that begin with aws: are AWS's own, and "
                               "can not be set",
                               key)};
    }
    if (!keys.insert(key).second) {
      return Error{Code::kInvalidArgument, fmt::format("Duplicate tag key '{}' in Tags", key)};
    }
  }
  return {};
}

std::vector<std::string> request_notes(const json::value& request) {
  std::vector<std::string> notes;
  std::string path;
  add_notes(request, path, notes);
  return notes;
}

}  // namespace atelier::jobs
