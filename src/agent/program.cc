#include "agent/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "agent/checkpoints.h"
#include "agent/instances.h"
#include "agent/network_slot.h"
#include "agent/warm_folder.h"
#include "compute/gpus.h"

namespace atelier::agent {
namespace {

constexpr const char* kCaInside = "/etc/ssl/atelier-ca.pem";

bool is_below(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.rfind(folder, 0) == 0 && path[folder.size()] == '/';
}

std::vector<compute::BindMount> gpu_devices(const AgentSpec& spec) {
  std::vector<std::string> names;
  for (const int number : spec.gpu_numbers) names.push_back(fmt::format("nvidia{}", number));
  if (!names.empty()) {
    const compute::GpuDevices there = compute::find_gpus(spec.device_folder);
    names.insert(names.end(), there.shared.begin(), there.shared.end());
  }
  std::vector<compute::BindMount> devices;
  for (const std::string& name : names) {
    devices.push_back({std::filesystem::path{spec.device_folder} / name, "/dev/" + name, true});
  }
  return devices;
}

bool in_system(const std::string& path) {
  for (const char* folder : {"/usr", "/bin", "/sbin", "/lib", "/lib64"}) {
    if (is_below(path, folder)) return true;
  }
  return false;
}

}  // namespace

int job_cpus(const AgentSpec& spec) {
  const int host = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (spec.vcpus <= 0) return host;
  return std::clamp(static_cast<int>(std::ceil(spec.vcpus)), 1, host);
}

compute::PipSetup job_pip_setup(const AgentSpec& spec) {
  const bool script = spec.runtime.kind == compute::RuntimeKind::kScript;
  const std::string python =
      script && !spec.runtime.program.empty() ? spec.runtime.program.front() : "/usr/bin/python3";
  return compute::pip_setup(spec.packages, python, packages_base(spec), spec.network_isolation);
}

std::map<std::string, std::string> platform_environment(const AgentSpec& spec) {
  std::map<std::string, std::string> environment{
      {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
      {"HOME", "/tmp"},
      {"USER", "atelier"},
      {"LANG", "C.UTF-8"},
      // As the framework images set them: lines appear when they are printed.
      {"PYTHONUNBUFFERED", "1"},
      {"PYTHONIOENCODING", "UTF-8"},
      {"PYTHONDONTWRITEBYTECODE", "1"},
      {"TRAINING_JOB_NAME", spec.job_name},
      {"TRAINING_JOB_ARN", spec.job_arn},
      {"AWS_REGION", spec.region},
      {"AWS_DEFAULT_REGION", spec.region},
      {"AWS_EC2_METADATA_DISABLED", "true"},
      // Waiting threads that spin take the CPUs of the host's other jobs (3.3 times slower,
      // measured for two jobs: targets.md, T11).
      {"OMP_NUM_THREADS", std::to_string(job_cpus(spec))},
      {"OMP_WAIT_POLICY", "passive"},
  };
  if (!spec.network_isolation) {
    environment["AWS_ENDPOINT_URL"] = spec.s3.url;
    environment["S3_ENDPOINT_URL"] = spec.s3.url;  // for toolkits older than AWS_ENDPOINT_URL
    // No keys here: a client would take those first and never renew them.
    if (!spec.credentials_uri.empty()) {
      environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = spec.credentials_uri;
      environment["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = spec.credentials_ticket;
    }
    if (!spec.s3.ca_file.empty()) environment["AWS_CA_BUNDLE"] = kCaInside;
  }
  // The operator's folder of pretrained weights, which the server mounts for the built-in
  // algorithm.
  const char* weights = std::getenv("ATELIER_WEIGHTS_DIR");
  if (spec.runtime.kind == compute::RuntimeKind::kBuiltIn && weights != nullptr) {
    environment["ATELIER_WEIGHTS_DIR"] = weights;
  }
  if (!spec.runtime.program.empty()) {
    const std::filesystem::path program = spec.runtime.program.front();
    if (spec.runtime.kind == compute::RuntimeKind::kScript && !in_system(program.string())) {
      environment["PATH"] = program.parent_path().string() + ":" + environment["PATH"];
    }
  }
  // A program counts the GPUs that it sees from zero, whichever of the host's they are.
  if (!spec.gpu_numbers.empty()) {
    std::vector<std::size_t> seen(spec.gpu_numbers.size());
    std::iota(seen.begin(), seen.end(), std::size_t{0});
    environment["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(seen, ","));
    environment["NVIDIA_VISIBLE_DEVICES"] = "all";  // of these, as in the framework images
  }
  // torchrun's own default is one port for the whole host.
  if (spec.network_slot > 0) {
    environment["PET_MASTER_PORT"] = std::to_string(master_port(spec.network_slot));
  }
  // torchrun of torch 1 cannot read its own default of these, "0", under Python 3.11 (Debian 12 has
  // the two): the enum no longer lists its zero. This says the same; a tenth process of a host
  // would write its lines to a file too.
  if (spec.runtime.framework_version.starts_with("1.")) {
    environment["PET_REDIRECTS"] = environment["PET_TEE"] = "9:1";
  }
  const compute::PipSetup pip = job_pip_setup(spec);
  environment["PATH"] += ":" + pip.bin_folder;
  environment.insert(pip.environment.begin(), pip.environment.end());
  for (const auto& [name, value] : spec.environment) environment[name] = value;
  return environment;
}

compute::SandboxSpec sandbox_spec(const AgentSpec& spec, const std::filesystem::path& job_folder) {
  compute::SandboxSpec sandbox;
  sandbox.name = sandbox_name(spec);
  sandbox.identity = identity_name(spec);
  sandbox.host_name = spec.host;
  sandbox.hosts.clear();
  int number = 0;
  for (const InstanceSpec& instance : instances_of(spec)) {
    sandbox.hosts[instance.host] = instance_address(spec.network_slot, ++number);
  }
  sandbox.ml_folder = job_folder / "ml";
  sandbox.mounts.push_back({job_folder / "tmp", "/tmp", true});
  for (compute::BindMount& mount : warm_mounts(spec)) sandbox.mounts.push_back(std::move(mount));
  for (compute::BindMount& mount : checkpoint_mounts(spec, job_folder)) {
    sandbox.mounts.push_back(std::move(mount));
  }
  for (const std::string& folder : spec.runtime.folders) {
    if (!in_system(folder)) sandbox.mounts.push_back({folder, folder, false});
  }
  if (!spec.runtime.program.empty()) {
    const std::string& program = spec.runtime.program.front();
    const auto& folders = spec.runtime.folders;
    const bool seen = in_system(program) ||
                      std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
                        return is_below(program, folder);
                      });
    if (!seen && program.front() == '/') sandbox.mounts.push_back({program, program, false});
  }
  if (!spec.s3.ca_file.empty() && !spec.network_isolation) {
    sandbox.mounts.push_back({spec.s3.ca_file, kCaInside, false});
  }
  compute::PipSetup pip = job_pip_setup(spec);
  sandbox.mounts.insert(sandbox.mounts.end(), pip.mounts.begin(), pip.mounts.end());
  sandbox.files.emplace("/etc/pip.conf", std::move(pip.configuration));
  sandbox.devices = gpu_devices(spec);
  sandbox.network_isolation = spec.network_isolation;
  sandbox.vcpus = spec.vcpus;
  sandbox.memory_gib = spec.memory_gib;
  sandbox.environment = platform_environment(spec);
  return sandbox;
}

std::vector<std::string> program_argv(const AgentSpec& spec) {
  // As in a container: ENTRYPOINT and CMD, each replaced by what the request gives.
  std::vector<std::string> argv = spec.container_entrypoint;
  if (argv.empty() && !spec.runtime.program.empty()) {
    argv.push_back(spec.runtime.program.front());
    if (spec.container_arguments.empty()) {
      argv.insert(argv.end(), spec.runtime.program.begin() + 1, spec.runtime.program.end());
    }
  }
  argv.insert(argv.end(), spec.container_arguments.begin(), spec.container_arguments.end());
  return argv;
}

std::vector<std::filesystem::path> written_places(const AgentSpec& spec,
                                                  const std::filesystem::path& job_folder) {
  std::vector<std::filesystem::path> places{job_folder / "ml", job_folder / "tmp",
                                            job_folder / "logs", job_folder / "metrics.jsonl"};
  for (const compute::BindMount& mount : checkpoint_mounts(spec, job_folder)) {
    places.push_back(mount.host);
  }
  return places;
}

ScriptInput script_input(const AgentSpec& spec) {
  ScriptInput input;
  input.hyperparameters = spec.hyperparameters;
  input.resource_config_json = resource_config_json(spec);
  input.input_data_config_json = input_data_config_json(spec);
  input.environment = platform_environment(spec);
  if (!spec.runtime.program.empty()) input.python = spec.runtime.program.front();
  input.framework_module = spec.runtime.framework_module;
  input.framework_version = spec.runtime.framework_version;
  input.region = spec.region;
  input.master_port = master_port(spec.network_slot);
  input.num_cpus = job_cpus(spec);
  input.num_gpus = static_cast<int>(spec.gpu_numbers.size());
  input.has_mpirun = spec.runtime.has_mpi;
  input.pip_advice = job_pip_setup(spec).advice;
  return input;
}

}  // namespace atelier::agent
