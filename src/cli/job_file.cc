#include "cli/job_file.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <vector>

#include "agent/journal.h"
#include "archives/utf8_locale.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/connection.h"

namespace atelier::cli {
namespace {
namespace fs = std::filesystem;

constexpr std::uint64_t kMaxSourceBytes = std::uint64_t{256} << 20;

Error bad_member(std::string_view key, std::string_view expected) {
  return Error{Code::kInvalidArgument, fmt::format("'{}' has to be {}", key, expected)};
}

// YAML scalars as JSON: SageMaker's own form needs numbers and booleans where the model has them.
json::value to_json(const YAML::Node& node) {
  if (node.IsMap()) {
    json::object object;
    for (const auto& member : node) object[member.first.Scalar()] = to_json(member.second);
    return object;
  }
  if (node.IsSequence()) {
    json::array array;
    for (const auto& item : node) array.push_back(to_json(item));
    return array;
  }
  if (node.IsNull()) return nullptr;
  const std::string text = node.Scalar();
  if (node.Tag() == "!") return json::value(text);  // quoted: text, whatever it looks like
  if (text == "true" || text == "false") return text == "true";
  if (Result<json::value> number = parse_json(text); number && number->is_number()) return *number;
  return json::value(text);
}

Result<std::map<std::string, std::string>> text_map(const YAML::Node& node, std::string_view key) {
  if (!node.IsMap()) return bad_member(key, "a map of names to values");
  std::map<std::string, std::string> map;
  for (const auto& member : node) {
    map[member.first.Scalar()] =
        member.second.IsScalar() ? member.second.Scalar() : json::serialize(to_json(member.second));
  }
  return map;
}

Result<std::string> text(const YAML::Node& node, std::string_view key) {
  if (!node.IsScalar()) return bad_member(key, "a single value");
  return node.Scalar();
}

Result<bool> flag(const YAML::Node& node, std::string_view key) {
  const std::string value = TRY(text(node, key));
  if (value != "true" && value != "false") return bad_member(key, "true or false");
  return value == "true";
}

Result<void> set_member(JobDescription& job, const std::string& key, const YAML::Node& value) {
  if (key == "name")
    job.name = TRY(text(value, key));
  else if (key == "exact_name")
    job.exact_name = TRY(flag(value, key));
  else if (key == "algorithm")
    job.algorithm = TRY(text(value, key));
  else if (key == "image")
    job.image = TRY(text(value, key));
  else if (key == "script")
    job.script = TRY(text(value, key));
  else if (key == "source")
    job.source = TRY(text(value, key));
  else if (key == "framework")
    job.framework = TRY(text(value, key));
  else if (key == "channels")
    job.channels = TRY(text_map(value, key));
  else if (key == "hyperparameters")
    job.hyperparameters = TRY(text_map(value, key));
  else if (key == "environment")
    job.environment = TRY(text_map(value, key));
  else if (key == "metrics")
    job.metrics = TRY(text_map(value, key));
  else if (key == "instance")
    job.instance = TRY(text(value, key));
  else if (key == "output")
    job.output = TRY(text(value, key));
  else if (key == "network_isolation")
    job.network_isolation = TRY(flag(value, key));
  else if (key == "max_runtime") {
    const std::string seconds = TRY(text(value, key));
    char* end = nullptr;
    job.max_runtime = std::strtol(seconds.c_str(), &end, 10);
    if (*end != '\0' || job.max_runtime < 1)
      return bad_member(key, "a number of seconds, 1 or more");
  } else {
    return Error{
        Code::kInvalidArgument,
        fmt::format(
            "'{}' is not known; known are name, exact_name, algorithm, image, script, source, "
            "framework, channels, hyperparameters, environment, metrics, instance, output, "
            "max_runtime and network_isolation",
            key)};
  }
  return {};
}

Result<std::string> image_of(const JobDescription& job) {
  if (!job.image.empty()) return job.image;
  if (!job.script.empty()) {
    if (job.framework != "pytorch") {
      return Error{
          Code::kInvalidArgument,
          fmt::format(
              "framework '{}': 'pytorch' is the one that is known; for others name an image",
              job.framework)};
    }
    // The URI that the SDK computes; the server runs the Python and torch that the machine has.
    return std::string{
        "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.3.0-cpu-py311"};
  }
  if (job.algorithm.empty() || job.algorithm == "image-classification") {
    return std::string{"433757028032.dkr.ecr.us-west-2.amazonaws.com/image-classification:1"};
  }
  return Error{
      Code::kInvalidArgument,
      fmt::format(
          "algorithm '{}': 'image-classification' is the one that is built in; or name a script",
          job.algorithm)};
}

json::array channels_of(const JobDescription& job) {
  json::array channels;
  for (const auto& [name, uri] : job.channels) {
    channels.push_back(json::object{{"ChannelName", name},
                                    {"DataSource",
                                     {{"S3DataSource",
                                       {{"S3DataType", "S3Prefix"},
                                        {"S3Uri", uri},
                                        {"S3DataDistributionType", "FullyReplicated"}}}}}});
  }
  return channels;
}

json::object hyperparameters_of(const JobDescription& job, const std::string& name,
                                const std::string& source_uri) {
  json::object object;
  for (const auto& [key, value] : job.hyperparameters) object[key] = value;
  if (!job.script.empty()) {
    // Framework containers read each value as JSON; what is not JSON already becomes a JSON string.
    for (auto& member : object) {
      const std::string value{std::string_view{member.value().get_string()}};
      if (!parse_json(value)) member.value() = json::serialize(json::string(value));
    }
    const auto quoted = [](std::string_view value) { return json::serialize(json::string(value)); };
    object["sagemaker_program"] = quoted(job.script.string());
    object["sagemaker_submit_directory"] = quoted(source_uri);
    object["sagemaker_container_log_level"] = "20";
    object["sagemaker_job_name"] = quoted(name);
    object["sagemaker_region"] = quoted(kDefaultRegion);
  }
  return object;
}

struct ArchiveCloser {
  void operator()(archive* a) const { archive_write_free(a); }
};
struct EntryCloser {
  void operator()(archive_entry* e) const { archive_entry_free(e); }
};

Result<void> add_file(archive* out, const fs::path& path, const std::string& name,
                      std::uint64_t& total) {
  // libarchive has no form for it, and dies of a null pointer.
  if (agent::valid_utf8(name) != name) {
    return Error{Code::kInvalidArgument,
                 fmt::format("the name of the file '{}' in the source folder is not UTF-8",
                             agent::valid_utf8(path.string()))};
  }
  const std::string bytes = TRY(read_file(path, kMaxSourceBytes));
  total += bytes.size();
  if (total > kMaxSourceBytes) {
    return Error{
        Code::kResourceExhausted,
        fmt::format("the source folder holds more than {} MiB; data belongs into a channel",
                    kMaxSourceBytes >> 20)};
  }
  std::error_code failure;
  const auto mode = fs::status(path, failure).permissions() & fs::perms::mask;
  const std::unique_ptr<archive_entry, EntryCloser> entry{archive_entry_new()};
  archive_entry_set_pathname_utf8(entry.get(), name.c_str());
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(bytes.size()));
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), static_cast<mode_t>(mode));
  archive_entry_set_mtime(entry.get(), 0, 0);
  if (archive_write_header(out, entry.get()) != ARCHIVE_OK ||
      archive_write_data(out, bytes.data(), bytes.size()) !=
          static_cast<la_ssize_t>(bytes.size())) {
    return Error{Code::kIo,
                 fmt::format("packing '{}': {}", path.string(), archive_error_string(out))};
  }
  return {};
}

}  // namespace

Result<JobDescription> parse_job_file(std::string_view yaml) {
  JobDescription job;
  try {
    const YAML::Node root = YAML::Load(std::string{yaml});
    if (!root.IsMap())
      return Error{Code::kInvalidArgument,
                   "a job is a map of names to values, such as 'name: fashion'"};
    if (root["AlgorithmSpecification"]) {
      job.raw = std::make_shared<json::value>(to_json(root));
      return job;
    }
    for (const auto& member : root) TRY(set_member(job, member.first.Scalar(), member.second));
  } catch (const YAML::Exception& failure) {
    return Error{Code::kInvalidArgument, fmt::format("not YAML: {}", failure.what())};
  }
  return job;
}

std::string job_name(const JobDescription& job, Time now) {
  if (job.exact_name) return job.name;
  std::string stamp = format_iso8601(now, true);  // 2026-11-30T07:05:55.123Z
  stamp.pop_back();
  std::replace_if(
      stamp.begin(), stamp.end(), [](char c) { return c == 'T' || c == ':' || c == '.'; }, '-');
  // 63 is SageMaker's limit on names.
  return job.name.substr(0, 63 - stamp.size() - 1) + "-" + stamp;
}

Result<json::value> create_request(const JobDescription& job, const std::string& name,
                                   const std::string& default_output,
                                   const std::string& source_uri) {
  if (job.raw) {
    json::value request = *job.raw;
    if (request.as_object().if_contains("TrainingJobName") == nullptr)
      request.as_object()["TrainingJobName"] = name;
    return request;
  }
  if (job.algorithm.empty() && job.script.empty() && job.image.empty()) {
    return Error{Code::kInvalidArgument,
                 "say what to run: an algorithm (image-classification), a script or an image"};
  }
  json::object algorithm{{"TrainingImage", TRY(image_of(job))}, {"TrainingInputMode", "File"}};
  json::array metrics;
  for (const auto& [metric, regex] : job.metrics)
    metrics.push_back(json::object{{"Name", metric}, {"Regex", regex}});
  if (!metrics.empty()) algorithm["MetricDefinitions"] = std::move(metrics);
  json::object request{
      {"TrainingJobName", name},
      {"AlgorithmSpecification", std::move(algorithm)},
      {"RoleArn", kRoleArn},
      {"OutputDataConfig", {{"S3OutputPath", job.output.empty() ? default_output : job.output}}},
      {"ResourceConfig",
       {{"InstanceType", job.instance}, {"InstanceCount", 1}, {"VolumeSizeInGB", 30}}},
      {"StoppingCondition", {{"MaxRuntimeInSeconds", job.max_runtime}}},
      {"HyperParameters", hyperparameters_of(job, name, source_uri)}};
  if (!job.channels.empty()) request["InputDataConfig"] = channels_of(job);
  if (job.network_isolation) request["EnableNetworkIsolation"] = true;
  json::object environment;
  for (const auto& [key, value] : job.environment) environment[key] = value;
  if (!environment.empty()) request["Environment"] = std::move(environment);
  return json::value(std::move(request));
}

Result<void> pack_source(const fs::path& folder, const fs::path& target) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (auto it = fs::recursive_directory_iterator(folder, failure); !failure && it != fs::end(it);
       it.increment(failure)) {
    if (it->is_regular_file(failure)) files.push_back(it->path());
  }
  if (failure) return error_from_errno(fmt::format("read '{}'", folder.string()), failure.value());
  std::sort(files.begin(), files.end());
  const archives::Utf8Locale utf8;
  const std::unique_ptr<archive, ArchiveCloser> out{archive_write_new()};
  archive_write_add_filter_gzip(out.get());
  archive_write_set_format_pax_restricted(out.get());
  if (archive_write_open_filename(out.get(), target.c_str()) != ARCHIVE_OK) {
    return Error{Code::kIo,
                 fmt::format("write '{}': {}", target.string(), archive_error_string(out.get()))};
  }
  std::uint64_t total = 0;
  for (const fs::path& file : files) {
    TRY(add_file(out.get(), file, file.lexically_relative(folder).generic_string(), total));
  }
  if (archive_write_close(out.get()) != ARCHIVE_OK) {
    return Error{Code::kIo,
                 fmt::format("write '{}': {}", target.string(), archive_error_string(out.get()))};
  }
  return {};
}

}  // namespace atelier::cli
