#include "agent/ml_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

#include "agent/instances.h"
#include "agent/local_path.h"
#include "base/json.h"

namespace atelier::agent {
namespace {

std::string quoted(std::string_view call, const std::string& name) {
  return fmt::format("{} '/opt/ml/{}'", call, name);
}

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

// Gives the folder and all folders below it to `owner`, and their files too when `with_files`.
// Depth is bounded by the paths that a channel may have (PATH_MAX).
Result<void> give_folder(const UniqueFd& folder, compute::Identity owner, bool with_files) {
  if (fchown(folder.get(), owner.uid, owner.gid) != 0) return error_from_errno("chown", errno);
  for (const std::string& name : TRY(names_in_folder(folder.get(), !with_files))) {
    const UniqueFd inner{
        openat(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (inner) {
      TRY(give_folder(inner, owner, with_files));
    } else if (with_files && fchownat(folder.get(), name.c_str(), owner.uid, owner.gid,
                                      AT_SYMLINK_NOFOLLOW) != 0) {
      return error_from_errno("chown '" + name + "'", errno);
    }
  }
  return {};
}

}  // namespace

Result<MlTree> MlTree::open(const std::filesystem::path& folder, compute::Identity owner) {
  TRY(make_folders(folder));
  UniqueFd root = TRY(atelier::open_file(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (fchown(root.get(), owner.uid, owner.gid) != 0) {
    return error_from_errno("chown '" + folder.string() + "'", errno);
  }
  return MlTree{folder, std::move(root), owner};
}

Result<UniqueFd> MlTree::open_beneath(const std::string& name, int flags, mode_t mode) const {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  UniqueFd fd{static_cast<int>(
      syscall(SYS_openat2, root_.get(), name.empty() ? "." : name.c_str(), &how, sizeof how))};
  if (!fd) return error_from_errno(quoted("open", name), errno);
  return fd;
}

Result<void> MlTree::make_folder(const std::string& name) {
  for (std::size_t end = 0; end != std::string::npos;) {
    end = name.find('/', end + 1);
    auto [parent, last] = TRY(parent_of(name.substr(0, end)));
    if (mkdirat(parent.get(), last.c_str(), 0755) != 0) {
      if (errno == EEXIST) continue;
      return error_from_errno(quoted("make folder", name), errno);
    }
    if (fchownat(parent.get(), last.c_str(), owner_.uid, owner_.gid, AT_SYMLINK_NOFOLLOW) != 0) {
      return error_from_errno(quoted("chown", name), errno);
    }
  }
  return {};
}

Result<std::pair<UniqueFd, std::string>> MlTree::parent_of(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  const std::string parent = slash == std::string::npos ? "" : name.substr(0, slash);
  UniqueFd fd = TRY(open_folder(parent));
  return std::pair{std::move(fd), slash == std::string::npos ? name : name.substr(slash + 1)};
}

Result<UniqueFd> MlTree::open_folder(const std::string& name) const {
  return open_beneath(name, O_RDONLY | O_DIRECTORY);
}

Result<UniqueFd> MlTree::open_file(const std::string& name) const {
  // Without O_NONBLOCK a FIFO would hold the agent for ever.
  UniqueFd fd = TRY(open_beneath(name, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return error_from_errno(quoted("stat", name), errno);
  if (!S_ISREG(info.st_mode)) {
    return Error{Code::kInvalidArgument, fmt::format("'/opt/ml/{}' is no regular file", name)};
  }
  return fd;
}

Result<UniqueFd> MlTree::create_file(const std::string& name, mode_t mode) {
  const std::size_t slash = name.rfind('/');
  if (slash != std::string::npos) TRY(make_folder(name.substr(0, slash)));
  UniqueFd fd = TRY(open_beneath(name, O_WRONLY | O_CREAT | O_EXCL, mode));
  if (fchown(fd.get(), owner_.uid, owner_.gid) != 0) {
    return error_from_errno(quoted("chown", name), errno);
  }
  return fd;
}

Result<void> MlTree::write_file(const std::string& name, std::string_view text) {
  const UniqueFd fd = TRY(create_file(name));
  Result<void> written = write_all(fd.get(), text);
  if (!written) return written.error().within(quoted("write", name));
  return written;
}

Result<std::string> MlTree::read_start(const std::string& name, std::size_t max_bytes) const {
  const UniqueFd fd = TRY(open_file(name));
  std::string text(max_bytes, '\0');
  std::size_t done = 0;
  while (done < max_bytes) {
    const ssize_t got = read(fd.get(), text.data() + done, max_bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_from_errno(quoted("read", name), errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

Result<void> MlTree::make_link(const std::string& target, const std::string& name) {
  const std::size_t slash = name.rfind('/');
  if (slash != std::string::npos) TRY(make_folder(name.substr(0, slash)));
  auto [parent, last] = TRY(parent_of(name));
  if (symlinkat(target.c_str(), parent.get(), last.c_str()) != 0) {
    return error_from_errno(quoted("link", name), errno);
  }
  return {};
}

Result<void> MlTree::make_executable(const std::string& name) {
  const UniqueFd fd = TRY(open_file(name));
  if (fchmod(fd.get(), 0777) != 0) return error_from_errno(quoted("chmod", name), errno);
  return {};
}

Result<void> MlTree::give_folders(const std::string& name) {
  return give_folder(TRY(open_folder(name)), owner_, false);
}

Result<void> MlTree::give_all(const std::string& name) {
  return give_folder(TRY(open_folder(name)), owner_, true);
}

Result<std::vector<std::string>> names_in_folder(int folder, bool folders_only) {
  const std::unique_ptr<DIR, CloseDir> entries{fdopendir(dup(folder))};
  if (!entries) return error_from_errno("read a folder of /opt/ml", errno);
  rewinddir(entries.get());
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    const bool wanted = !folders_only || entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
    if (wanted && name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return error_from_errno("read a folder of /opt/ml", errno);
  std::sort(names.begin(), names.end());
  return names;
}

std::string resource_config_json(const AgentSpec& spec) {
  const std::vector<InstanceSpec> instances = instances_of(spec);
  const auto current = std::ranges::find(instances, spec.host, &InstanceSpec::host);
  // Groups in their own order, hosts of each sorted.
  std::vector<std::string> names;
  for (const InstanceSpec& instance : instances) {
    if (std::ranges::find(names, instance.group) == names.end()) names.push_back(instance.group);
  }
  json::array groups;
  for (const std::string& name : names) {
    std::set<std::string> hosts;
    std::string type;
    for (const InstanceSpec& instance : instances) {
      if (instance.group != name) continue;
      hosts.insert(instance.host);
      type = instance.instance_type;
    }
    groups.push_back(json::object{{"instance_group_name", name},
                                  {"instance_type", type},
                                  {"hosts", json::array(hosts.begin(), hosts.end())}});
  }
  const std::vector<std::string> hosts = host_names(spec);
  return json::serialize(
      json::object{{"current_host", spec.host},
                   {"current_instance_type", spec.instance_type},
                   {"current_group_name", current == instances.end() ? "" : current->group},
                   {"hosts", json::array(hosts.begin(), hosts.end())},
                   {"instance_groups", std::move(groups)},
                   // The addresses of the hosts are loopback's.
                   {"network_interface_name", "lo"},
                   {"topology", nullptr}});
}

std::string input_data_config_json(const AgentSpec& spec) {
  json::object channels;
  for (const ChannelSpec& channel : spec.channels) {
    json::object entry{{"TrainingInputMode", channel.input_mode},
                       {"S3DistributionType", channel.distribution},
                       {"RecordWrapperType", channel.record_wrapper}};
    if (!channel.content_type.empty()) entry["ContentType"] = channel.content_type;
    // Ours besides: a program that reads the lines itself has to know what they were asked for.
    if (!channel.attribute_names.empty()) {
      entry["AttributeNames"] =
          json::array(channel.attribute_names.begin(), channel.attribute_names.end());
    }
    channels[channel.name] = std::move(entry);
  }
  return json::serialize(channels);
}

namespace {

// What the program is told about folders that are copied to S3, and those of them in the tree.
Result<void> prepare_synced(MlTree& tree, const AgentSpec& spec) {
  const auto prepare = [&](const std::optional<SyncedFolder>& folder, std::string_view file,
                           std::string_view uri_name) -> Result<void> {
    if (!folder) return {};
    const LocalPath place = TRY(place_local_path(folder->local_path));
    if (place.outside.empty()) TRY(tree.make_folder(place.in_ml));
    return tree.write_file(fmt::format("input/config/{}.json", file),
                           json::serialize(json::object{{uri_name, folder->s3_uri},
                                                        {"LocalPath", folder->local_path}}));
  };
  TRY(prepare(spec.checkpoints, "checkpointconfig", "S3Uri"));
  return prepare(spec.tensorboard, "tensorboardoutputconfig", "S3OutputPath");
}

}  // namespace

Result<void> prepare_ml_tree(MlTree& tree, const AgentSpec& spec) {
  for (const char* folder : {"input/config", "input/data", "code", "model", "output/data",
                             "output/intermediate", "output/tensors", "output/profiler",
                             "output/metrics/sagemaker", "output/tensorboard", "checkpoints"}) {
    TRY(tree.make_folder(folder));
  }
  json::object hyperparameters;
  for (const auto& [name, value] : spec.hyperparameters) hyperparameters[name] = value;
  json::array metrics;
  for (const MetricDefinition& metric : spec.metrics) {
    metrics.push_back(json::object{{"Name", metric.name}, {"Regex", metric.regex}});
  }
  for (const auto& [name, text] : {std::pair{"hyperparameters", json::serialize(hyperparameters)},
                                   {"inputdataconfig", input_data_config_json(spec)},
                                   {"resourceconfig", resource_config_json(spec)},
                                   {"metric-definition-regex", json::serialize(metrics)}}) {
    TRY(tree.write_file(fmt::format("input/config/{}.json", name), text));
  }
  for (const auto& [name, text] : spec.config_files) {
    TRY(tree.write_file("input/config/" + name, text));
  }
  return prepare_synced(tree, spec);
}

}  // namespace atelier::agent
