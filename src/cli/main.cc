// The program `atelier`: reads the arguments and calls the verb that they name.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "cli/verbs.h"

namespace {

// Whether all of the output could be written; it may be on its way to a disk that is full. Who
// closes a pipe has read enough, and needs no message.
bool printed() {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  const bool closed = poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
  if (!closed) std::fputs("atelier: the output could not be written\n", stderr);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace atelier::cli;
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App program{"Atelier: a training studio on machines you own, with SageMaker's API.",
                   "atelier"};
  program.require_subcommand(1);
  program.set_version_flag("--version", "atelier " ATELIER_VERSION);
  program.footer(
      "Example:\n"
      "  atelier serve --data-dir ./data &\n"
      "  atelier dataset import fashion-mnist s3://pictures/fashion --data-dir ./data\n"
      "  atelier train examples/fashion.yaml --data-dir ./data\n\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 no server, 4 not allowed,\n"
      "            5 not found, 6 the job was stopped.");
  Outcome outcome;
  add_serve(program, outcome);
  add_env(program, outcome);
  add_init(program, outcome);
  add_key(program, outcome);
  add_audit(program, outcome);
  add_dataset(program, outcome);
  add_cost(program, outcome);
  add_train(program, outcome);
  add_jobs(program, outcome);
  add_s3(program, outcome);
  add_cache(program, outcome);
  add_agent(program, outcome);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = program.exit(error);
    return code == 0 ? kOk : kUsage;
  }
  return printed() || outcome.exit_code != kOk ? outcome.exit_code : kFailed;
}
