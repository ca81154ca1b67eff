// How a script is started, by what its source folder holds.
#include <fmt/format.h>

#include "agent/internal/script_settings.h"
#include "agent/python_value.h"
#include "agent/script_mode.h"

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
  // Debian's pip refuses to touch the machine's packages without the second word (PEP 668); with
  // PYTHONUSERBASE it does not touch them.
  step.environment = {{"PIP_USER", "1"},
                      {"PIP_BREAK_SYSTEM_PACKAGES", "1"},
                      {"PIP_NO_CACHE_DIR", "1"},
                      {"PIP_DISABLE_PIP_VERSION_CHECK", "1"}};
  step.announcement = kind == ScriptStep::Kind::kInstallPackage
                          ? "Installing module."
                          : "Installing dependencies from requirements.txt";
  if (job.network_isolation) {
    // Fails at once instead of after minutes of retries; wheels inside of source_dir still install.
    step.environment["PIP_NO_INDEX"] = "1";
    step.announcement +=
        " (EnableNetworkIsolation is on: only what source_dir brings can be installed)";
  }
  return step;
}

ScriptStep run_step(const ScriptJob& job, bool package) {
  ScriptStep step;
  const bool command =
      job.entry_point.ends_with(".sh") || (!package && !job.entry_point.ends_with(".py"));
  if (job.torchrun_processes > 0) {
    step.argv = {
        "torchrun",     "--nnodes", "1", "--nproc_per_node", std::to_string(job.torchrun_processes),
        job.entry_point};
  } else if (command) {
    std::string line = "./" + shell_quote(job.entry_point) + " ";
    for (std::size_t i = 0; i < job.arguments.size(); ++i) {
      line += (i > 0 ? " " : "") + shell_quote(job.arguments[i]);
    }
    step.argv = {"/bin/sh", "-c", line};
    return step;
  } else if (package) {
    step.argv = {job.python, "-m", module_name(job.entry_point)};
  } else {
    step.argv = {job.python, "--", job.entry_point};
  }
  step.argv.insert(step.argv.end(), job.arguments.begin(), job.arguments.end());
  return step;
}

}  // namespace

CodeFolder look_at_code(const std::filesystem::path& folder, std::string_view entry_point) {
  std::error_code ignored;  // what cannot be looked at is not there
  return CodeFolder{
      .has_setup_py = std::filesystem::exists(folder / "setup.py", ignored),
      .has_requirements = std::filesystem::exists(folder / "requirements.txt", ignored),
      .has_entry_point = std::filesystem::exists(folder / entry_point, ignored)};
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
  if (job.torchrun_processes > 0 && (package || !python)) {
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
  plan.steps.push_back(run_step(job, package));
  plan.make_executable = !python;
  return plan;
}

}  // namespace atelier::agent
