#include <CLI/CLI.hpp>
#include <memory>

#include "agent/spec.h"
#include "cli/verbs.h"

namespace atelier::cli {

void add_agent(CLI::App& program, Outcome& outcome) {
  auto folder = std::make_shared<std::string>();
  // Started by the server, one per job; hidden from people by an empty group.
  CLI::App* verb =
      program.add_subcommand("agent", "Runs the job of one folder to its end")->group("");
  verb->add_option("--job-folder", *folder, "Folder with spec.json")->required();
  verb->footer(
      "Started by 'atelier serve', one for each instance of a job.\n"
      "Example: atelier agent --job-folder ./data/jobs/NAME");
  verb->callback([folder, &outcome] {
    const Result<void> done = agent::run_agent(*folder);
    outcome.exit_code = done ? kOk : report_error(done.error());
  });
}

}  // namespace atelier::cli
