// The failure file as the toolkit writes it (its process.watch, process.check_error and errors.py).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_set>

#include "agent/script_mode.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kMaxKept = 64 * 1024;

// The toolkit's _PYTHON_ERRORS_ and _MPI_ERRORS_ and its own classes, less those that hold another
// name of the list: a search for the shorter one finds both.
constexpr std::array<std::string_view, 56> kErrorNames = {"Exception",
                                                          "ArithmeticError",
                                                          "AssertionError",
                                                          "AttributeError",
                                                          "BrokenPipeError",
                                                          "BufferError",
                                                          "ChildProcessError",
                                                          "ConnectionAbortedError",
                                                          "ConnectionError",
                                                          "ConnectionRefusedError",
                                                          "ConnectionResetError",
                                                          "EOFError",
                                                          "EnvironmentError",
                                                          "FileExistsError",
                                                          "FileNotFoundError",
                                                          "FloatingPointError",
                                                          "IOError",
                                                          "ImportError",
                                                          "IndentationError",
                                                          "IndexError",
                                                          "InterruptedError",
                                                          "IsADirectoryError",
                                                          "KeyError",
                                                          "LookupError",
                                                          "MemoryError",
                                                          "ModuleNotFoundError",
                                                          "NameError",
                                                          "NotADirectoryError",
                                                          "NotImplementedError",
                                                          "OSError",
                                                          "OverflowError",
                                                          "PermissionError",
                                                          "RecursionError",
                                                          "ReferenceError",
                                                          "RuntimeError",
                                                          "SyntaxError",
                                                          "SystemError",
                                                          "TabError",
                                                          "TimeoutError",
                                                          "TypeError",
                                                          "UnboundLocalError",
                                                          "UnicodeDecodeError",
                                                          "UnicodeEncodeError",
                                                          "UnicodeError",
                                                          "UnicodeTranslateError",
                                                          "ValueError",
                                                          "ZeroDivisionError",
                                                          "Invalid requirement",
                                                          "ResourceExhaustedError",
                                                          "OutOfRangeError",
                                                          "InvalidArgumentError",
                                                          "mpirun.real",
                                                          "ORTE",
                                                          "ExecuteUserScriptError",
                                                          "InstallModuleError",
                                                          "InstallRequirementsError"};

// SM_TRAINING_COMPILER_PATHS
constexpr std::array<std::string_view, 4> kCompilerPaths = {
    "tensorflow/compiler/xla", "tensorflow/compiler/tf2xla", "tensorflow/python/compiler/xla",
    "torch_xla/"};

bool holds_any(std::string_view text, const auto& needles) {
  return std::ranges::any_of(needles, [&](std::string_view needle) {
    return text.find(needle) != std::string_view::npos;
  });
}

std::string_view strip(std::string_view text, std::string_view characters) {
  const std::size_t first = text.find_first_not_of(characters);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(characters) - first + 1);
}

constexpr std::string_view kBlanks = " \t\n\r\v\f";

std::string_view error_class(ScriptStep::Kind kind) {
  switch (kind) {
    case ScriptStep::Kind::kInstallPackage:
      return "InstallModuleError";
    case ScriptStep::Kind::kInstallRequirements:
      return "InstallRequirementsError";
    case ScriptStep::Kind::kRun:
      break;
  }
  return "ExecuteUserScriptError";
}

std::string extra_info(const ScriptJob& job, const ScriptStep& step, const StepExit& exit,
                       std::string_view message) {
  if (holds_any(message, kCompilerPaths)) {
    return "SMTrainingCompiler Error: Error occurred in SMTrainingCompiler.";
  }
  if (exit.out_of_memory || exit.code == 137) {
    return "OutOfMemory: Process killed by SIGKILL (signal 9)";
  }
  if (step.kind != ScriptStep::Kind::kRun) return job.pip_advice;
  return {};
}

}  // namespace

namespace {

// Without the rank in front: "[1,0]<stderr>:" of mpirun, "[1,mpirank:0,algo-1]<stderr>:" as the
// toolkit shows it.
std::string_view without_rank(std::string_view line) {
  if (!line.starts_with('[')) return line;
  for (const std::string_view end : {"]<stdout>", "]<stderr>"}) {
    const std::size_t at = line.find(end);
    if (at != std::string_view::npos && at < 64) return line.substr(at + end.size());
  }
  return line;
}

}  // namespace

void FailureCollector::line(std::string_view line) {
  line = without_rank(line);
  if (!started_) started_ = holds_any(line, kErrorNames);
  if (!started_ || kept_.size() >= kMaxKept) return;
  // The toolkit joins its pieces by a blank; it stays in front of every line but the first.
  kept_ += ' ';
  kept_ += strip(line.substr(0, kMaxKept - kept_.size() + 1), " :\n");
  kept_ += '\n';
}

std::string FailureCollector::message() const {
  std::unordered_set<std::string_view> seen;
  std::string out;
  for (std::size_t at = 0; at < kept_.size();) {
    const std::size_t end = kept_.find('\n', at);
    const std::string_view line = std::string_view(kept_).substr(at, end - at);
    if (seen.insert(line).second) {
      out += line;
      out += '\n';
    }
    at = end + 1;
  }
  return std::string(strip(out, kBlanks));
}

std::string failure_text(const ScriptJob& job, const ScriptStep& step, const StepExit& exit,
                         const FailureCollector& collector) {
  const std::string message = collector.message();
  std::string text = fmt::format("{}:\nExitCode {}\nErrorMessage \"{}\"\n", error_class(step.kind),
                                 exit.signal != 0 ? -exit.signal : exit.code, message);
  const std::string extra = extra_info(job, step, exit, message);
  if (!extra.empty()) text += fmt::format("ExtraInfo \"{}\"\n", extra);
  std::string command;
  for (const std::string& word : step.argv) {
    if (!command.empty()) command += ' ';
    command += word;
  }
  return std::string(strip(text + fmt::format("Command \"{}\"", command), kBlanks));
}

}  // namespace atelier::agent
