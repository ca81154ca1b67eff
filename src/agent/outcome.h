// How a job ended, in the journal's terms and in words for people.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "agent/ml_tree.h"
#include "agent/spec.h"
#include "agent/supervisor.h"

namespace atelier::agent {

struct Outcome {
  std::string kind = "failed";  // completed | failed | stopped | max-runtime | interrupted
  std::string message;          // FailureReason, for failed
  int exit_code = 0;
  int signal = 0;
  bool out_of_memory = false;
  bool killed = false;         // by a signal: what it was writing may be half written
  bool beyond_volume = false;  // ended for what it, or its warm pool, holds on the disk
  bool ran = false;            // the program has run: there may be something to upload
  bool delivered = true;       // false: what could not be uploaded is still in the job's folder
  std::map<std::string, double> final_metrics;
  std::optional<std::chrono::milliseconds> attempt_time;  // from the download on, by a steady clock
};

// What the program's log says of a failure.
struct LogWords {
  std::string last_lines;
  std::string errors;  // from the first line on that names an error; empty when none does
};

Outcome failed(std::string message);

// Of a program that has ended: completed, stopped, max-runtime, interrupted, or failed with the
// true cause, which is /opt/ml/output/failure, else how it ended and the last lines of its log.
// Where a launcher wrote that file about the program that it started, as the driver of the
// SageMaker SDK v3 does, the cause is what that program said. A program that is warned of an
// interruption and ends with exit code 0 has finished its work, unless it handles SIGTERM: then it
// may as well have saved its state and left, and a second attempt, which finds that state, is the
// answer that is right in both cases.
Outcome outcome_of(const ProgramEnd& end, const MlTree& tree, const AgentSpec& spec,
                   const LogWords& log);

// For the journal's detail.
std::string to_json(const Outcome& outcome);
Outcome parse_outcome(std::string_view json);

// "SIGSEGV (signal 11)".
std::string signal_words(int number);

}  // namespace atelier::agent
