#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <deque>
#include <fstream>
#include <iostream>
#include <memory>

#include "api/audit.h"
#include "base/json.h"
#include "cli/connection.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace atelier::cli {
namespace {
namespace fs = std::filesystem;

struct AuditOptions {
  std::string data_folder;
  std::string principal;
  std::string action;
  bool refused = false;
  bool unknown = false;
  bool as_json = false;
  std::size_t last = 100;
};

bool is_wanted(const json::value& line, const AuditOptions& options) {
  const auto has = [&](std::string_view name, const std::string& part) {
    return part.empty() || find_string(line, name).value_or("").find(part) != std::string::npos;
  };
  return has("principal", options.principal) && has("action", options.action) &&
         (!options.refused || find_int(line, "status").value_or(0) >= 400);
}

std::string as_text(const json::value& line) {
  const auto text = [&](std::string_view name) { return find_string(line, name).value_or("-"); };
  return fmt::format("{}  {:3}  {}  {}  {}  {}  {}", text("time"),
                     find_int(line, "status").value_or(0), text("principal"), text("action"),
                     text("resource"), find_string(line, "error").value_or(""), text("source"));
}

Result<void> show(const AuditOptions& options) {
  const fs::path folder =
      options.data_folder.empty() ? default_data_folder() : fs::path{options.data_folder};
  const std::vector<fs::path> files = api::audit_files(folder / "audit", options.unknown);
  if (files.empty()) {
    return Error{Code::kNotFound,
                 fmt::format("no calls are recorded in '{}'", (folder / "audit").string())};
  }
  std::deque<std::string> lines;
  for (const fs::path& path : files) {
    std::ifstream file{path};
    for (std::string line; std::getline(file, line);) {
      const Result<json::value> parsed = parse_json(line);
      // A line that a kill cut short says nothing for certain.
      if (!parsed || !is_wanted(*parsed, options)) continue;
      lines.push_back(options.as_json ? line : printable(as_text(*parsed)));
      if (lines.size() > options.last) lines.pop_front();
    }
  }
  for (const std::string& line : lines) std::cout << line << '\n';
  return {};
}

}  // namespace

void add_audit(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<AuditOptions>();
  CLI::App* verb = program.add_subcommand("audit", "Who called what, and what came of it");
  verb->add_option("--data-dir", options->data_folder, "Data folder of the server");
  verb->add_option("--principal", options->principal, "Only of principals with this in their ARN");
  verb->add_option("--action", options->action, "Only actions with this in their name");
  verb->add_flag("--refused", options->refused, "Only calls that were refused or failed");
  verb->add_flag("--unknown", options->unknown,
                 "Refusals of callers that nobody knows, instead of the others' calls");
  verb->add_option("--last", options->last, "At most so many, the newest")->capture_default_str();
  verb->add_flag("--json", options->as_json, "As JSON Lines");
  verb->footer("Example: atelier audit --refused --principal user/ann --data-dir ./data");
  verb->callback([options, &outcome] {
    const Result<void> done = show(*options);
    outcome.exit_code = done ? kOk : report_error(done.error());
  });
}

}  // namespace atelier::cli
