// The program `atelier`: reads the arguments and calls the verb that they name.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "cli/terminal.h"
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

// What was given where a verb was asked for: "foo" of `atelier foo` and of `atelier jobs foo`.
std::string unknown_verb(const CLI::App& program) {
  const CLI::App* asked = &program;
  while (!asked->get_subcommands().empty()) asked = asked->get_subcommands().back();
  const std::vector<std::string> rest = asked->remaining();
  if (rest.empty()) return {};
  std::string verbs;
  for (const CLI::App* verb : asked->get_subcommands([](const CLI::App* one) {
         return !one->get_name().empty() && !one->get_group().empty();
       }))
    verbs += (verbs.empty() ? "" : ", ") + verb->get_name();
  if (verbs.empty()) return {};
  return "'" + atelier::cli::printable(rest.front()) + "' is none of the verbs: " + verbs;
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
  } catch (const CLI::RequiredError& error) {
    const std::string unknown = unknown_verb(program);
    if (unknown.empty()) return program.exit(error), kUsage;
    std::cerr << "atelier: " << unknown << "\nRun with --help for more information.\n";
    return kUsage;
  } catch (const CLI::ParseError& error) {
    const int code = program.exit(error);
    return code == 0 ? kOk : kUsage;
  }
  return printed() || outcome.exit_code != kOk ? outcome.exit_code : kFailed;
}
