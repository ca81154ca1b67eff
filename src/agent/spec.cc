#include "agent/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <system_error>

#include "base/json.h"

namespace atelier::agent {
namespace {

// A spec is written by our own control plane; the bounds keep a damaged or hostile one harmless.
constexpr std::size_t kMaxSpecBytes = std::size_t{64} << 20;

constexpr std::int64_t kNoSeed = -1;

json::object map_to_json(const std::map<std::string, std::string>& map) {
  json::object object;
  for (const auto& [name, value] : map) object[name] = value;
  return object;
}

json::array list_to_json(const std::vector<std::string>& list) {
  return json::array(list.begin(), list.end());
}

// Reads members into a struct and remembers the first thing that does not fit.
class Reader {
 public:
  Reader(const json::value& value, std::string path) : path_(std::move(path)) {
    object_ = value.if_object();
    if (object_ == nullptr) fail("", "an object");
  }

  void text(std::string_view name, std::string& out, bool required = false) {
    const json::value* value = find(name, required);
    if (value == nullptr) return;
    if (!value->is_string()) return fail(name, "a string");
    out = std::string{value->get_string()};
  }
  void flag(std::string_view name, bool& out) {
    const json::value* value = find(name, false);
    if (value == nullptr) return;
    if (!value->is_bool()) return fail(name, "true or false");
    out = value->get_bool();
  }
  void number(std::string_view name, double& out) {
    const json::value* value = find(name, false);
    if (value == nullptr) return;
    const double number = value->is_double()  ? value->get_double()
                          : value->is_int64() ? static_cast<double>(value->get_int64())
                                              : -1.0;
    if (!std::isfinite(number) || number < 0) return fail(name, "a number that is not negative");
    out = number;
  }
  void seconds(std::string_view name, std::chrono::seconds& out) {
    const json::value* value = find(name, false);
    if (value == nullptr) return;
    // A year of 400 days: more is a mistake, and keeps sums of times far from overflow.
    if (!value->is_int64() || value->get_int64() < 0 || value->get_int64() > 400 * 86400) {
      return fail(name, "seconds from 0 to 34560000");
    }
    out = std::chrono::seconds{value->get_int64()};
  }
  template <typename Number>
  void whole(std::string_view name, std::int64_t least, std::int64_t most, Number& out) {
    const json::value* value = find(name, false);
    if (value == nullptr) return;
    if (!value->is_int64() || value->get_int64() < least || value->get_int64() > most) {
      return fail(name, fmt::format("a whole number from {} to {}", least, most));
    }
    out = static_cast<Number>(value->get_int64());
  }
  void list(std::string_view name, std::vector<std::string>& out) {
    const json::value* value = find(name, false);
    if (value == nullptr) return;
    if (!value->is_array()) return fail(name, "a list of strings");
    for (const json::value& item : value->get_array()) {
      if (!item.is_string()) return fail(name, "a list of strings");
      out.emplace_back(item.get_string());
    }
  }
  void map(std::string_view name, std::map<std::string, std::string>& out) {
    const json::value* value = find(name, false);
    if (value == nullptr) return;
    if (!value->is_object()) return fail(name, "an object of strings");
    for (const auto& [key, item] : value->get_object()) {
      if (!item.is_string()) return fail(name, "an object of strings");
      out[std::string{key}] = std::string{item.get_string()};
    }
  }
  // Calls `each` with a Reader for every object of the list.
  template <typename Each>
  void objects(std::string_view name, Each each) {
    const json::value* value = find(name, false);
    if (value == nullptr) return;
    if (!value->is_array()) return fail(name, "a list of objects");
    for (const json::value& item : value->get_array()) nested(item, name, each);
  }
  template <typename Each>
  void object(std::string_view name, Each each, bool required = true) {
    const json::value* value = find(name, required);
    if (value != nullptr) nested(*value, name, each);
  }

  void fail(std::string_view name, std::string_view wanted) {
    if (failure_.empty()) failure_ = fmt::format("{}{} has to be {}", path_, name, wanted);
  }
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  const json::value* find(std::string_view name, bool required) {
    if (object_ == nullptr) return nullptr;
    const json::value* value = object_->if_contains(name);
    if (value == nullptr && required) fail(name, "given");
    return value;
  }
  template <typename Each>
  void nested(const json::value& item, std::string_view name, Each each) {
    Reader reader{item, fmt::format("{}{}.", path_, name)};
    each(reader);
    if (failure_.empty()) failure_ = reader.failure();
  }

  const json::object* object_ = nullptr;
  std::string path_;
  std::string failure_;
};

json::array instances_to_json(const std::vector<InstanceSpec>& instances) {
  json::array list;
  for (const InstanceSpec& instance : instances) {
    list.push_back(json::object{{"host", instance.host},
                                {"group", instance.group},
                                {"instance_type", instance.instance_type},
                                {"vcpus", instance.vcpus},
                                {"memory_gib", instance.memory_gib},
                                {"gpus", instance.gpus}});
  }
  return list;
}

void read_gpus(Reader& reader, int& gpus) {
  double number = 0;
  reader.number("gpus", number);
  if (number > 1024 || number != std::floor(number)) {
    reader.fail("gpus", "a whole number, 1024 at most");
  }
  gpus = static_cast<int>(std::min(number, 1024.0));
}

void read_instance(Reader& reader, InstanceSpec& instance) {
  reader.text("host", instance.host, true);
  reader.text("group", instance.group);
  reader.text("instance_type", instance.instance_type);
  reader.number("vcpus", instance.vcpus);
  reader.number("memory_gib", instance.memory_gib);
  read_gpus(reader, instance.gpus);
}

json::object channel_to_json(const ChannelSpec& channel) {
  return {{"name", channel.name},
          {"s3_uri", channel.s3_uri},
          {"s3_data_type", channel.s3_data_type},
          {"distribution", channel.distribution},
          {"input_mode", channel.input_mode},
          {"content_type", channel.content_type},
          {"record_wrapper", channel.record_wrapper},
          {"compression", channel.compression},
          {"attribute_names", list_to_json(channel.attribute_names)},
          {"shuffle_seed", channel.shuffle_seed.value_or(kNoSeed)},
          {"groups", list_to_json(channel.groups)},
          {"shard_index", channel.shard_index},
          {"shard_count", channel.shard_count}};
}

void read_channel(Reader& reader, ChannelSpec& channel) {
  reader.text("name", channel.name, true);
  reader.text("s3_uri", channel.s3_uri, true);
  reader.text("s3_data_type", channel.s3_data_type);
  reader.text("distribution", channel.distribution);
  reader.text("input_mode", channel.input_mode);
  reader.text("content_type", channel.content_type);
  reader.text("record_wrapper", channel.record_wrapper);
  reader.text("compression", channel.compression);
  reader.list("attribute_names", channel.attribute_names);
  std::int64_t seed = kNoSeed;
  reader.whole("shuffle_seed", kNoSeed, std::numeric_limits<std::int64_t>::max(), seed);
  if (seed != kNoSeed) channel.shuffle_seed = seed;
  reader.list("groups", channel.groups);
  double index = 0, count = 1;
  reader.number("shard_index", index);
  reader.number("shard_count", count);
  if (!(count >= 1 && count <= 10000 && index < count)) {
    return reader.fail("shard_index", "below shard_count, which is 1 to 10000");
  }
  channel.shard_index = static_cast<int>(index);
  channel.shard_count = static_cast<int>(count);
}

json::object runtime_to_json(const compute::Runtime& runtime) {
  return {{"kind", runtime.kind == compute::RuntimeKind::kScript ? "script" : "built-in"},
          {"name", runtime.name},
          {"program", list_to_json(runtime.program)},
          {"framework_module", runtime.framework_module},
          {"framework_version", runtime.framework_version},
          {"folders", list_to_json(runtime.folders)},
          {"has_mpi", runtime.has_mpi},
          {"note", runtime.note}};
}

void read_runtime(Reader& reader, compute::Runtime& runtime) {
  std::string kind;
  reader.text("kind", kind, true);
  if (kind != "script" && kind != "built-in") reader.fail("kind", "script or built-in");
  runtime.kind = kind == "script" ? compute::RuntimeKind::kScript : compute::RuntimeKind::kBuiltIn;
  reader.text("name", runtime.name);
  reader.list("program", runtime.program);
  reader.text("framework_module", runtime.framework_module);
  reader.text("framework_version", runtime.framework_version);
  reader.list("folders", runtime.folders);
  reader.flag("has_mpi", runtime.has_mpi);
  reader.text("note", runtime.note);
}

json::object s3_to_json(const objects::S3Endpoint& s3) {
  return {{"url", s3.url},
          {"region", s3.region},
          {"ca_file", s3.ca_file},
          {"url_file", s3.url_file},
          {"access_key", s3.credentials.access_key},
          {"secret_key", s3.credentials.secret_key},
          {"session_token", s3.credentials.session_token}};
}

void read_s3(Reader& reader, objects::S3Endpoint& s3) {
  reader.text("url", s3.url, true);
  reader.text("region", s3.region);
  reader.text("ca_file", s3.ca_file);
  reader.text("url_file", s3.url_file);
  reader.text("access_key", s3.credentials.access_key);
  reader.text("secret_key", s3.credentials.secret_key);
  reader.text("session_token", s3.credentials.session_token);
}

void read_synced(Reader& reader, std::string_view name, std::optional<SyncedFolder>& folder) {
  const auto read = [&](Reader& item) {
    folder.emplace();
    item.text("s3_uri", folder->s3_uri, true);
    item.text("local_path", folder->local_path, true);
  };
  reader.object(name, read, false);
}

// A job name becomes part of paths and object keys, a channel's name that of a folder.
bool is_plain_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  return name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

// Absolute, and its last part is a name.
bool is_folder_path(std::string_view path) {
  return path.starts_with('/') && !path.ends_with('/') && !path.ends_with("/..") &&
         !path.ends_with("/.") && path.find('\0') == std::string_view::npos;
}

// It becomes a folder's name, and a line of /etc/hosts.
bool is_host_name(std::string_view name) {
  return name.size() > 5 && name.size() < 64 && name.starts_with("algo-") &&
         name.find_first_not_of("0123456789", 5) == std::string_view::npos;
}

}  // namespace

std::string to_json(const AgentSpec& spec) {
  json::array channels;
  for (const ChannelSpec& channel : spec.channels) channels.push_back(channel_to_json(channel));
  json::array metrics;
  for (const MetricDefinition& metric : spec.metrics) {
    metrics.push_back(json::object{{"name", metric.name}, {"regex", metric.regex}});
  }
  json::object object =
      json::object{{"job_name", spec.job_name},
                   {"job_arn", spec.job_arn},
                   {"region", spec.region},
                   {"s3", s3_to_json(spec.s3)},
                   {"credentials_uri", spec.credentials_uri},
                   {"credentials_ticket", spec.credentials_ticket},
                   {"runtime", runtime_to_json(spec.runtime)},
                   {"container_entrypoint", list_to_json(spec.container_entrypoint)},
                   {"container_arguments", list_to_json(spec.container_arguments)},
                   {"hyperparameters", map_to_json(spec.hyperparameters)},
                   {"environment", map_to_json(spec.environment)},
                   {"channels", channels},
                   {"metrics", metrics},
                   {"host", spec.host},
                   {"instances", instances_to_json(spec.instances)},
                   {"network_slot", spec.network_slot},
                   {"shared_network", spec.shared_network},
                   {"instance_type", spec.instance_type},
                   {"vcpus", spec.vcpus},
                   {"memory_gib", spec.memory_gib},
                   {"gpus", spec.gpus},
                   {"device_folder", spec.device_folder},
                   {"gpu_folder", spec.gpu_folder},
                   {"volume_gib", spec.volume_gib},
                   {"network_isolation", spec.network_isolation},
                   {"host_network", spec.host_network},
                   {"infra_check", spec.infra_check},
                   {"packages", to_words(spec.packages)},
                   {"config_files", map_to_json(spec.config_files)},
                   {"output_s3_uri", spec.output_s3_uri},
                   {"compress_output", spec.compress_output},
                   {"max_runtime_seconds", spec.max_runtime.count()},
                   {"stop_grace_seconds", spec.stop_grace.count()},
                   {"packing_seconds", spec.packing_time.count()},
                   {"log_stream", spec.log_stream},
                   {"attempt", spec.attempt},
                   {"interruption_notice_seconds", spec.interruption_notice.count()},
                   {"journal_floor", spec.journal_floor}};
  const auto add_synced = [&](const char* name, const std::optional<SyncedFolder>& folder) {
    if (!folder) return;
    object[name] = json::object{{"s3_uri", folder->s3_uri}, {"local_path", folder->local_path}};
  };
  add_synced("checkpoints", spec.checkpoints);
  add_synced("tensorboard", spec.tensorboard);
  object["cache_folder"] = spec.cache_folder;
  object["cache_bytes"] = static_cast<std::int64_t>(spec.cache_bytes);
  object["warm_pool"] = spec.warm_pool;
  return json::serialize(object);
}

Result<AgentSpec> parse_agent_spec(std::string_view text) {
  if (text.size() > kMaxSpecBytes) {
    return Error{Code::kInvalidArgument,
                 fmt::format("spec of {} bytes; at most {} are read", text.size(), kMaxSpecBytes)};
  }
  const json::value value = TRY(parse_json(text));
  AgentSpec spec;
  Reader reader{value, "spec."};
  reader.text("job_name", spec.job_name, true);
  reader.text("job_arn", spec.job_arn);
  reader.text("region", spec.region);
  reader.text("credentials_uri", spec.credentials_uri);
  reader.text("credentials_ticket", spec.credentials_ticket);
  reader.object("s3", [&](Reader& item) { read_s3(item, spec.s3); });
  reader.object("runtime", [&](Reader& item) { read_runtime(item, spec.runtime); });
  reader.list("container_entrypoint", spec.container_entrypoint);
  reader.list("container_arguments", spec.container_arguments);
  reader.map("hyperparameters", spec.hyperparameters);
  reader.map("environment", spec.environment);
  reader.objects("channels",
                 [&](Reader& item) { read_channel(item, spec.channels.emplace_back()); });
  reader.objects("metrics", [&](Reader& item) {
    MetricDefinition& metric = spec.metrics.emplace_back();
    item.text("name", metric.name, true);
    item.text("regex", metric.regex, true);
  });
  reader.text("host", spec.host);
  reader.objects("instances",
                 [&](Reader& item) { read_instance(item, spec.instances.emplace_back()); });
  double slot = 0;
  reader.number("network_slot", slot);
  if (slot > 1000) reader.fail("network_slot", "1000 at most");
  spec.network_slot = static_cast<int>(std::min(slot, 1000.0));
  reader.text("shared_network", spec.shared_network);
  reader.text("instance_type", spec.instance_type);
  reader.number("vcpus", spec.vcpus);
  reader.number("memory_gib", spec.memory_gib);
  read_gpus(reader, spec.gpus);
  reader.text("device_folder", spec.device_folder);
  reader.text("gpu_folder", spec.gpu_folder);
  double volume = 0;
  reader.number("volume_gib", volume);
  if (volume > 1e6) reader.fail("volume_gib", "1000000 at most");
  spec.volume_gib = static_cast<int>(std::min(volume, 1e6));
  reader.flag("network_isolation", spec.network_isolation);
  reader.flag("host_network", spec.host_network);
  reader.flag("infra_check", spec.infra_check);
  std::string packages = "none";
  reader.text("packages", packages);
  Result<compute::PackageSource> source = compute::parse_package_source(packages);
  if (!source) reader.fail("packages", "none, host, an address or a folder");
  if (source) spec.packages = *std::move(source);
  reader.map("config_files", spec.config_files);
  reader.text("output_s3_uri", spec.output_s3_uri);
  reader.flag("compress_output", spec.compress_output);
  reader.seconds("max_runtime_seconds", spec.max_runtime);
  reader.seconds("stop_grace_seconds", spec.stop_grace);
  reader.seconds("packing_seconds", spec.packing_time);
  reader.text("log_stream", spec.log_stream);
  reader.seconds("interruption_notice_seconds", spec.interruption_notice);
  reader.whole("attempt", 1, std::numeric_limits<int>::max(), spec.attempt);
  reader.whole("journal_floor", 0, std::numeric_limits<std::int64_t>::max(), spec.journal_floor);
  read_synced(reader, "checkpoints", spec.checkpoints);
  reader.text("cache_folder", spec.cache_folder);
  reader.text("warm_pool", spec.warm_pool);
  if (!spec.warm_pool.empty() && !is_folder_path(spec.warm_pool)) {
    reader.fail("warm_pool", "an absolute path that ends with the pool's name");
  }
  reader.whole("cache_bytes", 0, std::numeric_limits<std::int64_t>::max(), spec.cache_bytes);
  read_synced(reader, "tensorboard", spec.tensorboard);
  if (!is_plain_name(spec.job_name)) reader.fail("job_name", "a name without '/'");
  if (!is_host_name(spec.host)) reader.fail("host", "a name such as algo-1");
  for (const InstanceSpec& instance : spec.instances) {
    if (!is_host_name(instance.host)) reader.fail("instances.host", "a name such as algo-1");
  }
  for (const ChannelSpec& channel : spec.channels) {
    if (!is_plain_name(channel.name)) reader.fail("channels.name", "a name without '/'");
  }
  for (const auto& [name, contents] : spec.config_files) {
    if (!is_plain_name(name)) reader.fail("config_files", "names without '/'");
  }
  if (!reader.failure().empty()) return Error{Code::kInvalidArgument, reader.failure()};
  return spec;
}

std::filesystem::path instance_folder(const std::filesystem::path& job_folder,
                                      std::string_view host) {
  return host == kLeader ? job_folder : job_folder / "instances" / host;
}

std::vector<std::string> instance_hosts(const std::filesystem::path& job_folder) {
  std::vector<std::string> hosts;
  std::error_code failure;
  // What a link leads to is none of the job's.
  const auto is_folder = [&](const std::filesystem::path& path) {
    return std::filesystem::is_directory(std::filesystem::symlink_status(path, failure));
  };
  const std::filesystem::path others = job_folder / "instances";
  if (is_folder(others)) {
    for (const auto& entry : std::filesystem::directory_iterator(others, failure)) {
      std::string name = entry.path().filename().string();
      if (is_host_name(name) && is_folder(entry.path())) hosts.push_back(std::move(name));
    }
  }
  std::ranges::sort(hosts);
  hosts.insert(hosts.begin(), std::string{kLeader});
  return hosts;
}

}  // namespace atelier::agent
