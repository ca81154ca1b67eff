// Distributed scripts: which launcher the toolkit would take, and its command line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "agent/internal/script_settings.h"
#include "agent/ranks_file.h"

namespace atelier::agent::internal {
namespace {

constexpr int kMaxProcesses = 1024;

// The type of machine decides what the toolkit tells NCCL: SM_EFA_NCCL_INSTANCES and
// SM_EFA_RDMA_INSTANCES have a network that is not there on a host of one's own. The variables are
// Amazon's plugin's, so nothing reads them here; they are left out.

struct Distribution {
  std::string_view switched_by, name;
};
constexpr std::array<Distribution, 2> kRefused = {{
    {"sagemaker_distributed_dataparallel_enabled", "smdistributed.dataparallel"},
    {"sagemaker_pytorch_xla_multi_worker_enabled", "pytorchxla"},
}};

bool enabled(const Split& split, std::string_view name) {
  return get(split.framework, name, false).truthy();
}

// A count that a hyperparameter gives; `otherwise` when it is absent, zero or empty.
Result<int> read_count(const Split& split, std::string_view name, int otherwise) {
  const PythonValue value = get(split.framework, name, {});
  if (!value.truthy()) return otherwise;
  const std::string text = python_str(value);
  int count = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failure == std::errc{} && end == text.data() + text.size() && count >= 1 &&
      count <= kMaxProcesses) {
    return count;
  }
  return invalid(fmt::format("hyperparameter {} is {}: it must be a number from 1 to {}", name,
                             python_dumps(value), kMaxProcesses));
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = text.find_first_not_of(" \t\n\r\v\f", at);
    if (start == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(" \t\n\r\v\f", start), text.size());
    words.emplace_back(text.substr(start, end - start));
    at = end;
  }
  return words;
}

// _parse_custom_mpi_options(): --NCCL_DEBUG is its own, the rest goes to mpirun.
void read_options(std::string_view text, Launcher& launcher) {
  constexpr std::string_view kDebug = "--NCCL_DEBUG";
  const std::vector<std::string> words = words_of(text);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == kDebug && i + 1 < words.size()) {
      launcher.nccl_debug = words[++i];
    } else if (words[i].starts_with(std::string{kDebug} + "=")) {
      launcher.nccl_debug = words[i].substr(kDebug.size() + 1);
    } else {
      launcher.options.push_back(words[i]);
    }
  }
  for (std::size_t i = 0; i + 1 < launcher.options.size(); ++i) {
    const std::size_t equals = launcher.options[i + 1].find('=');
    if (launcher.options[i] != "-x" || equals == std::string::npos) continue;
    launcher.environment[launcher.options[i + 1].substr(0, equals)] =
        launcher.options[i + 1].substr(equals + 1);
  }
}

// MPI, and pytorchddp, which the toolkit starts by MPI too.
Result<void> read_mpi(const ScriptInput& input, const Split& split, bool ddp, Launcher& launcher) {
  launcher.torch_variables = ddp;
  launcher.processes = TRY(
      read_count(split, "sagemaker_mpi_num_of_processes_per_host", std::max(1, input.num_gpus)));
  launcher.total = launcher.processes * static_cast<int>(launcher.hosts.size());
  const char* options = ddp ? "sagemaker_distributed_dataparallel_custom_mpi_options"
                            : "sagemaker_mpi_custom_mpi_options";
  const PythonValue custom = get(split.framework, options, "");
  if (custom.truthy()) read_options(python_str(custom), launcher);
  const bool real = !ddp && input.has_mpirun && launcher.hosts.size() == 1;
  launcher.kind = real ? Launcher::Kind::kMpirun : Launcher::Kind::kRanks;
  if (ddp) return {};
  const int total = TRY(read_count(split, "sagemaker_mpi_num_processes", launcher.total));
  if (!real && total != launcher.total) {
    return Error{Code::kUnimplemented,
                 fmt::format("hyperparameter sagemaker_mpi_num_processes is {}, and {} hosts with "
                             "{} processes each make {}: without mpirun each host starts the same "
                             "number",
                             total, launcher.hosts.size(), launcher.processes, launcher.total)};
  }
  launcher.total = total;
  return {};
}

std::vector<std::string> mpirun_command(const ScriptJob& job) {
  const Launcher& mpi = job.launcher;
  std::vector<std::string> hosts = mpi.hosts;
  if (mpi.processes > 1) {
    for (std::string& host : hosts) host += fmt::format(":{}", mpi.processes);
  }
  const std::string& interface = mpi.network_interface;
  std::vector<std::string> argv = {"mpirun",
                                   "--host",
                                   fmt::format("{}", fmt::join(hosts, ",")),
                                   "-np",
                                   std::to_string(mpi.total),
                                   "--allow-run-as-root",
                                   "--display-map",
                                   "--tag-output"};
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, std::string>>{{"btl_tcp_if_include", interface},
                                                                  {"oob_tcp_if_include", interface},
                                                                  {"plm_rsh_no_tree_spawn", "1"}}) {
    argv.insert(argv.end(), {"-mca", name, value});
  }
  argv.insert(argv.end(), {"-bind-to", "none", "-map-by", "slot"});
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"pml", "ob1"},
           {"btl", "^openib"},
           {"orte_abort_on_non_zero_status", "1"},
           {"btl_vader_single_copy_mechanism", "none"}}) {
    argv.insert(argv.end(), {"-mca", name, value});
  }
  argv.insert(argv.end(), {"-x", "NCCL_MIN_NRINGS=4", "-x", "NCCL_SOCKET_IFNAME=" + interface, "-x",
                           "NCCL_DEBUG=" + mpi.nccl_debug, "-x", "LD_LIBRARY_PATH", "-x", "PATH"});
  argv.insert(argv.end(), mpi.options.begin(), mpi.options.end());
  // The toolkit names those of its own variables; here a process needs all that the job has.
  for (const auto& [name, value] : job.environment) {
    if (name != "PATH" && name != "LD_LIBRARY_PATH") argv.insert(argv.end(), {"-x", name});
  }
  return argv;
}

std::vector<std::string> torchrun_command(const ScriptJob& job) {
  const Launcher& torch = job.launcher;
  std::vector<std::string> argv = {"torchrun", "--nnodes", std::to_string(torch.hosts.size()),
                                   "--nproc_per_node", std::to_string(torch.processes)};
  if (torch.hosts.size() > 1) {
    argv.insert(argv.end(),
                {"--master_addr", torch.master, "--master_port", std::to_string(job.master_port),
                 "--node_rank", std::to_string(torch.host_rank)});
  }
  argv.push_back(job.entry_point);
  argv.insert(argv.end(), job.arguments.begin(), job.arguments.end());
  return argv;
}

std::vector<std::string> ranks_command(const ScriptJob& job) {
  const Launcher& ranks = job.launcher;
  std::vector<std::string> argv = {job.python,    std::string{kRanksPath},
                                   "--host",      ranks.current_host,
                                   "--processes", std::to_string(ranks.processes),
                                   "--first",     std::to_string(ranks.host_rank * ranks.processes),
                                   "--total",     std::to_string(ranks.total)};
  if (ranks.torch_variables) argv.emplace_back("--torch");
  argv.emplace_back("--");
  return argv;
}

}  // namespace

Result<Launcher> read_launcher(const ScriptInput& input, const Split& split,
                               const Cluster& cluster) {
  Launcher launcher;
  if (!contains(cluster.distribution_groups, cluster.current_group)) return launcher;
  launcher.current_host = cluster.current_host;
  launcher.master = cluster.master;
  launcher.network_interface = python_str(cluster.network_interface);
  for (const PythonValue& host : *cluster.distribution_hosts.list()) {
    launcher.hosts.push_back(python_str(host));
  }
  const auto place = std::ranges::find(launcher.hosts, cluster.current_host);
  if (place == launcher.hosts.end()) return Launcher{};
  launcher.host_rank = static_cast<int>(place - launcher.hosts.begin());

  // In the order in which sagemaker_pytorch_container.training asks.
  if (enabled(split, "sagemaker_mpi_enabled")) {
    TRY(read_mpi(input, split, false, launcher));
  } else if (enabled(split, "sagemaker_pytorch_ddp_enabled")) {
    TRY(read_mpi(input, split, true, launcher));
  } else if (enabled(split, "sagemaker_torch_distributed_enabled")) {
    launcher.kind = Launcher::Kind::kTorchrun;
    launcher.processes = TRY(
        read_count(split, "sagemaker_mpi_num_of_processes_per_host", std::max(1, input.num_gpus)));
    launcher.total = launcher.processes * static_cast<int>(launcher.hosts.size());
  } else {
    for (const Distribution& refused : kRefused) {
      if (!enabled(split, refused.switched_by)) continue;
      return Error{Code::kUnimplemented,
                   fmt::format("distribution '{}' (hyperparameter {}) needs libraries that Amazon "
                               "keeps in its images; use {{'torch_distributed': {{'enabled': "
                               "True}}}} or 'pytorchddp'",
                               refused.name, refused.switched_by)};
    }
  }
  return launcher;
}

ScriptStep launched(const ScriptJob& job, std::vector<std::string> script) {
  ScriptStep step;
  const Launcher& launcher = job.launcher;
  switch (launcher.kind) {
    case Launcher::Kind::kProcess:
      break;
    case Launcher::Kind::kTorchrun:
      step.argv = torchrun_command(job);
      step.environment = {{"NCCL_PROTO", "simple"},
                          {"NCCL_SOCKET_IFNAME", launcher.network_interface}};
      return step;
    case Launcher::Kind::kMpirun:
      step.argv = mpirun_command(job);
      // mpi4py ends all processes when one of them raises; it takes no "--" before the script.
      if (script.size() > 1 && script.front() == job.python) {
        if (script[1] == "--") script.erase(script.begin() + 1);
        script.insert(script.begin() + 1, {"-m", "mpi4py"});
      }
      break;
    case Launcher::Kind::kRanks:
      step.argv = ranks_command(job);
      step.files.emplace(kRanksPath, ranks_file());
      step.environment = launcher.environment;
      step.environment["NCCL_DEBUG"] = launcher.nccl_debug;
      step.environment["NCCL_MIN_NRINGS"] = "4";
      break;
  }
  step.argv.insert(step.argv.end(), script.begin(), script.end());
  return step;
}

}  // namespace atelier::agent::internal
