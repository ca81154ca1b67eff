// The verbs of the command line, one file each. Each adds its options to the program and, when it
// was named, leaves in `outcome` what it came to.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace CLI {
class App;
}

namespace atelier::cli {

// Exit codes that scripts can rely on; `atelier --help` lists them.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,       // the operation, or the job it waited for, failed
  kUsage = 2,        // wrong arguments or input
  kUnreachable = 3,  // no server there
  kDenied = 4,       // wrong keys, or not allowed
  kNotThere = 5,     // a job, object or folder that does not exist
  kStopped = 6,      // the job it waited for was stopped
};
ExitCode exit_code_for(const Error& error);

// Prints "atelier: MESSAGE" to stderr and returns the code that fits.
ExitCode report_error(const Error& error);

// What was called, with the outcome once it ran.
struct Outcome {
  int exit_code = kOk;
};

void add_serve(CLI::App& program, Outcome& outcome);
void add_agent(CLI::App& program, Outcome& outcome);
void add_key(CLI::App& program, Outcome& outcome);
void add_audit(CLI::App& program, Outcome& outcome);
void add_cache(CLI::App& program, Outcome& outcome);
void add_env(CLI::App& program, Outcome& outcome);
void add_init(CLI::App& program, Outcome& outcome);
void add_cost(CLI::App& program, Outcome& outcome);
void add_train(CLI::App& program, Outcome& outcome);
void add_jobs(CLI::App& program, Outcome& outcome);
void add_dataset(CLI::App& program, Outcome& outcome);
void add_s3(CLI::App& program, Outcome& outcome);

}  // namespace atelier::cli
