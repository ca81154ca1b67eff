// Runs a user's script without a container exactly as sagemaker-training-toolkit 5.1 does inside
// one: the same SM_* variables, the same command line, the same words in the failure file. Pure
// functions; the agent fetches the source, starts what the plan says and feeds the output back.
//
//   ScriptJob job = TRY(read_script_job(input));            // before anything is started
//   ... fetch job.source into /opt/ml/code ...
//   ScriptPlan plan = TRY(plan_script(job, look_at_code(code_folder)));
//   for (const ScriptStep& step : plan.steps) {             // pip first if there is something to
//     FailureCollector collector;                           //   install, the script last
//     ... run step.argv in the sandbox, with job.environment and step.environment over it, in
//         /opt/ml/code; collector.line() for every line that it prints ...
//     if (not exit 0) write failure_text(...) to /opt/ml/output/failure unless a file is there
//   }
//
// Not taken over: SMDDP and XLA, which need Amazon's libraries, are refused by name, and
// intermediate output is not synced while the job runs (a warning says so). MPI over several hosts
// needs daemons that a sandbox does not have: there, and where mpirun is not installed, ranks.py
// starts the processes with the variables by which PyTorch, Horovod-free scripts and others know
// their rank.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::agent {

struct ScriptInput {
  std::map<std::string, std::string> hyperparameters;  // as in hyperparameters.json
  std::string resource_config_json;                    // the text of resourceconfig.json
  std::string input_data_config_json;                  // the text of inputdataconfig.json
  // Of the container before the toolkit starts: TRAINING_JOB_NAME, the job's Environment, keys.
  std::map<std::string, std::string> environment;
  std::string base_folder = "/opt/ml";  // inside the sandbox
  std::string python = "/usr/bin/python3";
  std::string framework_module;   // "sagemaker_pytorch_container.training:main"
  std::string framework_version;  // torch.__version__; empty when it is not known
  std::string region;             // where the hyperparameters name none
  int num_cpus = 1;
  int num_gpus = 0;
  int master_port = 7777;   // another one where jobs that share a network would meet
  bool has_mpirun = false;  // both of Open MPI and of mpi4py, for the Python above
  std::string pip_advice;   // said when an install fails: where packages could come from
};

struct ScriptSource {
  enum class Kind {
    kNone,     // /opt/ml/code is all there is
    kS3,       // a .tar.gz at an s3:// address
    kChannel,  // a .tar.gz that a channel brought (the SDK does so under network isolation)
  };
  Kind kind = Kind::kNone;
  std::string location;  // the s3:// address, or the path inside the sandbox
};

// Who starts the processes of the script on this host.
struct Launcher {
  enum class Kind {
    kProcess,   // the script itself, once
    kTorchrun,  // PyTorch's own
    kMpirun,    // Open MPI's
    kRanks,     // ranks.py (ranks_file())
  };
  Kind kind = Kind::kProcess;
  int processes = 1;               // on this host
  std::vector<std::string> hosts;  // of the distribution, in the order of their ranks
  int host_rank = 0;               // of this host among them
  int total = 0;                   // processes of all hosts
  std::string current_host, master, network_interface;
  bool torch_variables = false;                    // RANK and LOCAL_RANK besides those of Open MPI
  std::string nccl_debug = "INFO";                 // of mpirun's custom options
  std::vector<std::string> options;                // the others of them
  std::map<std::string, std::string> environment;  // what the options export (-x NAME=VALUE)
};

struct ScriptJob {
  ScriptSource source;
  std::string entry_point;                         // "train.py", relative to the code folder
  std::vector<std::string> arguments;              // of the script
  std::map<std::string, std::string> environment;  // everything that the script sees
  std::vector<std::string> warnings;               // for people
  std::string python;
  Launcher launcher;
  int master_port = 7777;
  std::string pip_advice;
};

// kInvalidArgument names the hyperparameter, the value and what would be right.
Result<ScriptJob> read_script_job(const ScriptInput& input);

// What is in the code folder, as far as it decides how the script is started.
struct CodeFolder {
  bool has_setup_py = false;
  bool has_requirements = false;
  bool has_entry_point = false;
};
// Links are followed within the folder alone: where they lead outside, nothing is there.
CodeFolder look_at_code(const std::filesystem::path& folder, const std::string& entry_point);

struct ScriptStep {
  enum class Kind { kInstallPackage, kInstallRequirements, kRun };
  Kind kind = Kind::kRun;
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;  // on top of the job's
  std::map<std::string, std::string> files;        // by their path in the sandbox, read-only
  std::string announcement;                        // a line for the job's log; empty: none
};

struct ScriptPlan {
  std::vector<ScriptStep> steps;
  bool make_executable = false;  // the entry point is a command: chmod 0777 first
};

Result<ScriptPlan> plan_script(const ScriptJob& job, const CodeFolder& code);

// Keeps what the toolkit would quote as ErrorMessage: the output from the first line on that names
// a known error. Bounded: 64 KiB.
class FailureCollector {
 public:
  void line(std::string_view line);
  // Without doubled lines.
  [[nodiscard]] std::string message() const;

 private:
  std::string kept_;
  bool started_ = false;
};

// How a step ended; `signal` is 0 for a normal exit.
struct StepExit {
  int code = 0;
  int signal = 0;
  bool out_of_memory = false;
};

// The text of the failure file for a step that failed, such as
//   ExecuteUserScriptError:
//   ExitCode 1
//   ErrorMessage "ValueError: no pictures"
//   Command "/usr/bin/python3 -- train.py --epochs 3"
std::string failure_text(const ScriptJob& job, const ScriptStep& step, const StepExit& exit,
                         const FailureCollector& collector);

// The toolkit flattens every failure of the script to this exit code of the container.
inline constexpr int kScriptFailureExitCode = 1;

}  // namespace atelier::agent
