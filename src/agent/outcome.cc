#include "agent/outcome.h"

#include <fmt/format.h>
#include <string.h>

#include "agent/journal.h"
#include "base/json.h"

namespace atelier::agent {
namespace {

// The API's limit of FailureReason, and what SageMaker takes of the failure file.
constexpr std::size_t kReasonCharacters = 1024;

// The first `count` characters of valid UTF-8.
std::string_view first_characters(std::string_view text, std::size_t count) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U;
    if (starts && count-- == 0) return text.substr(0, i);
  }
  return text;
}

// As much of the end of `lines` as fits, from a whole line on.
std::string_view last_bytes(std::string_view lines, std::size_t count) {
  if (lines.size() <= count) return lines;
  const std::size_t start = lines.find('\n', lines.size() - count);
  return start == std::string_view::npos ? std::string_view{} : lines.substr(start + 1);
}

std::string how_it_ended(const compute::SandboxExit& exit) {
  if (exit.signal != 0) return "the program was killed by " + signal_words(exit.signal);
  return fmt::format("the program ended with exit code {}", exit.code);
}

std::string memory_words(const AgentSpec& spec) {
  return fmt::format(
      "out of memory: the kernel killed a process of the job at its limit of {:.3g} GiB ({}). ",
      spec.memory_gib, spec.instance_type);
}

// Python's words for "the program that I started has failed", as the end of a traceback.
bool is_of_a_launcher(std::string_view failure) {
  const std::size_t at = failure.rfind("CalledProcessError: Command ");
  return at != std::string_view::npos &&
         failure.find("returned non-zero exit status ", at) != std::string_view::npos;
}

std::string reason_of(const compute::SandboxExit& exit, const MlTree& tree, const AgentSpec& spec,
                      const LogWords& log) {
  std::string reason = "AlgorithmError: ";
  if (exit.out_of_memory) reason += memory_words(spec);
  // Four bytes a character at most.
  const Result<std::string> file = tree.read_start("output/failure", 4 * kReasonCharacters);
  const int code = exit.signal != 0 ? 128 + exit.signal : exit.code;
  if (file && !file->empty()) {
    // The exit code stands behind it, within the API's limit.
    const std::string end = fmt::format(", exit code: {}", code);
    const std::string words =
        valid_utf8(is_of_a_launcher(*file) && !log.errors.empty() ? log.errors : *file);
    reason += first_characters(words, kReasonCharacters - reason.size() - end.size());
    return reason + end;
  }
  reason += how_it_ended(exit);
  if (file || file.error().code != Code::kNotFound) {
    if (!file) reason += fmt::format(" (its failure file is of no use: {})", file.error().message);
  }
  const std::size_t room = kReasonCharacters - std::min(kReasonCharacters, reason.size() + 30);
  const std::string_view quoted = last_bytes(log.last_lines, room);
  return reason + (quoted.empty() ? "; it printed nothing"
                                  : fmt::format(". Last lines of its log:\n{}", quoted));
}

std::string interruption_words(const ProgramEnd& end, const AgentSpec& spec) {
  return fmt::format(
      "The training job was interrupted: {}. It goes on from its checkpoints when there is room",
      end.grace_over ? fmt::format("the program was killed at the end of its {} s of notice",
                                   spec.interruption_notice.count())
                     : how_it_ended(end.exit));
}

}  // namespace

Outcome failed(std::string message) {
  Outcome outcome;
  outcome.message = std::move(message);
  return outcome;
}

std::string signal_words(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number)
                         : fmt::format("SIG{} (signal {})", name, number);
}

Outcome outcome_of(const ProgramEnd& end, const MlTree& tree, const AgentSpec& spec,
                   const LogWords& log) {
  Outcome outcome;
  outcome.ran = true;
  outcome.exit_code = end.exit.code;
  outcome.signal = end.exit.signal;
  outcome.out_of_memory = end.exit.out_of_memory;
  outcome.killed = end.killed;
  if (end.asked == ProgramEnd::Asked::kStop) {
    outcome.kind = "stopped";
  } else if (end.asked == ProgramEnd::Asked::kMaxRuntime) {
    outcome.kind = "max-runtime";
    outcome.message =
        fmt::format("the program ran for its limit of {} s", spec.max_runtime.count());
  } else if (end.exit.code == 0 && end.exit.signal == 0 &&
             !(end.asked == ProgramEnd::Asked::kInterrupt && end.handles_sigterm)) {
    outcome.kind = "completed";
  } else if (end.asked == ProgramEnd::Asked::kInterrupt) {
    outcome.kind = "interrupted";
    outcome.message = interruption_words(end, spec);
  } else {
    outcome.message = reason_of(end.exit, tree, spec, log);
  }
  return outcome;
}

std::string to_json(const Outcome& outcome) {
  json::object metrics;
  for (const auto& [name, value] : outcome.final_metrics) metrics[name] = value;
  json::object detail{{"outcome", outcome.kind},
                      {"reason", valid_utf8(outcome.message)},
                      {"exit_code", outcome.exit_code},
                      {"signal", outcome.signal},
                      {"out_of_memory", outcome.out_of_memory},
                      {"killed", outcome.killed},
                      {"beyond_volume", outcome.beyond_volume},
                      {"ran", outcome.ran},
                      {"delivered", outcome.delivered},
                      {"final_metrics", std::move(metrics)}};
  if (outcome.attempt_time) detail["ran_ms"] = outcome.attempt_time->count();
  return json::serialize(detail);
}

Outcome parse_outcome(std::string_view text) {
  const Result<json::value> value = parse_json(text);
  if (!value) return failed("InternalServerError: the journal lost how the program ended");
  Outcome outcome;
  outcome.kind = find_string(*value, "outcome").value_or("failed");
  outcome.message = find_string(*value, "reason").value_or("");
  outcome.exit_code = static_cast<int>(find_int(*value, "exit_code").value_or(0));
  outcome.signal = static_cast<int>(find_int(*value, "signal").value_or(0));
  outcome.out_of_memory = find_bool(*value, "out_of_memory").value_or(false);
  outcome.killed = find_bool(*value, "killed").value_or(true);
  outcome.beyond_volume = find_bool(*value, "beyond_volume").value_or(false);
  outcome.ran = find_bool(*value, "ran").value_or(true);
  outcome.delivered = find_bool(*value, "delivered").value_or(true);
  if (const json::object* metrics = find_object(*value, "final_metrics")) {
    for (const auto& [name, number] : *metrics) {
      if (number.is_number()) outcome.final_metrics[name] = number.to_number<double>();
    }
  }
  return outcome;
}

}  // namespace atelier::agent
