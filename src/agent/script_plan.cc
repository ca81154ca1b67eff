// How a script is started, by what its source folder holds.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/internal/script_settings.h"
#include "agent/python_value.h"
#include "agent/script_mode.h"
#include "base/file.h"

namespace atelier::agent {
namespace {

using internal::invalid;
using internal::module_name;

ScriptStep install_step(const ScriptJob& job, ScriptStep::Kind kind, bool requirements) {
  ScriptStep step;
  step.kind = kind;
  step.argv = {job.python, "-m", "pip", "install"};
  if (kind == ScriptStep::Kind::kInstallPackage) step.argv.emplace_back(".");
  if (requirements) {
    step.argv.emplace_back("-r");
    step.argv.emplace_back("requirements.txt");
  }
  step.announcement = kind == ScriptStep::Kind::kInstallPackage
                          ? "Installing module."
                          : "Installing dependencies from requirements.txt";
  return step;
}

// The command of one process of the script.
std::vector<std::string> script_command(const ScriptJob& job, bool package) {
  std::vector<std::string> argv;
  if (job.entry_point.ends_with(".sh") || (!package && !job.entry_point.ends_with(".py"))) {
    std::string line = "./" + shell_quote(job.entry_point) + " ";
    for (std::size_t i = 0; i < job.arguments.size(); ++i) {
      line += (i > 0 ? " " : "") + shell_quote(job.arguments[i]);
    }
    return {"/bin/sh", "-c", line};
  }
  if (package) {
    argv = {job.python, "-m", module_name(job.entry_point)};
  } else {
    argv = {job.python, "--", job.entry_point};
  }
  argv.insert(argv.end(), job.arguments.begin(), job.arguments.end());
  return argv;
}

// Whether something is at `name` in the folder, by links that stay in it.
bool holds(const UniqueFd& folder, const std::string& name) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const UniqueFd fd{
      static_cast<int>(syscall(SYS_openat2, folder.get(), name.c_str(), &how, sizeof how))};
  return static_cast<bool>(fd);
}

}  // namespace

CodeFolder look_at_code(const std::filesystem::path& folder, const std::string& entry_point) {
  const Result<UniqueFd> fd = open_file(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd) return {};
  return CodeFolder{.has_setup_py = holds(*fd, "setup.py"),
                    .has_requirements = holds(*fd, "requirements.txt"),
                    .has_entry_point = holds(*fd, entry_point)};
}

Result<ScriptPlan> plan_script(const ScriptJob& job, const CodeFolder& code) {
  const bool shell = job.entry_point.ends_with(".sh");
  const bool package = !shell && code.has_setup_py;
  const bool python = package || job.entry_point.ends_with(".py");
  if (!package && !code.has_entry_point) {
    return invalid(fmt::format(
        "the entry point '{}' is not in the source that was uploaded; it must be a path inside of "
        "source_dir",
        job.entry_point));
  }
  if (job.launcher.kind == Launcher::Kind::kTorchrun && (package || !python)) {
    return invalid(fmt::format("torch_distributed starts Python scripts only, and '{}' is a {}",
                               job.entry_point,
                               package ? "package (source_dir has a setup.py)" : "command"));
  }
  ScriptPlan plan;
  if (package) {
    plan.steps.push_back(
        install_step(job, ScriptStep::Kind::kInstallPackage, code.has_requirements));
  } else if (python && code.has_requirements) {
    plan.steps.push_back(install_step(job, ScriptStep::Kind::kInstallRequirements, true));
  }
  plan.steps.push_back(internal::launched(job, script_command(job, package)));
  plan.make_executable = !python;
  return plan;
}

}  // namespace atelier::agent
