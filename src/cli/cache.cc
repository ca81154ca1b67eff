#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/json.h"
#include "channels/object_cache.h"
#include "cli/connection.h"
#include "cli/verbs.h"

namespace atelier::cli {
namespace {
namespace fs = std::filesystem;

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

Result<void> show(const fs::path& folder, bool as_json) {
  const channels::CacheStatus status = TRY(channels::ObjectCache::status(folder));
  if (as_json) {
    std::cout << json::serialize(json::object{{"folder", folder.string()},
                                              {"files", status.files},
                                              {"bytes", status.bytes},
                                              {"linked_files", status.linked_files},
                                              {"linked_bytes", status.linked_bytes}})
              << '\n';
    return {};
  }
  std::cout << fmt::format("{}: {} files, {}; in use by jobs: {} files, {}\n", folder.string(),
                           status.files, megabytes(status.bytes), status.linked_files,
                           megabytes(status.linked_bytes));
  return {};
}

Result<void> clear(const fs::path& folder, bool as_json) {
  const std::uint64_t freed = TRY(channels::ObjectCache::clear(folder));
  if (as_json) {
    std::cout << json::serialize(json::object{{"folder", folder.string()}, {"freed_bytes", freed}})
              << '\n';
    return {};
  }
  std::cout << fmt::format("{} freed\n", megabytes(freed));
  return {};
}

}  // namespace

void add_cache(CLI::App& program, Outcome& outcome) {
  auto data_folder = std::make_shared<std::string>(default_data_folder().string());
  auto as_json = std::make_shared<bool>(false);
  CLI::App* verb =
      program.add_subcommand("cache", "What jobs of this host share of their channels");
  verb->require_subcommand(1);
  verb->footer("Example: atelier cache status --data-dir ./data");
  const auto run = [&outcome](const Result<void>& result) {
    if (!result) outcome.exit_code = report_error(result.error());
  };
  CLI::App* status = verb->add_subcommand("status", "How much there is, and how much jobs use");
  status->add_option("--data-dir", *data_folder, "Of the server");
  status->add_flag("--json", *as_json, "One JSON object");
  status->footer("Example: atelier cache status --data-dir ./data");
  status->callback([=] { run(show(fs::path{*data_folder} / "cache", *as_json)); });
  CLI::App* remove = verb->add_subcommand("clear", "Removes what no job uses");
  remove->add_option("--data-dir", *data_folder, "Of the server");
  remove->add_flag("--json", *as_json, "One JSON object");
  remove->footer("Example: atelier cache clear --data-dir ./data");
  remove->callback([=] { run(clear(fs::path{*data_folder} / "cache", *as_json)); });
}

}  // namespace atelier::cli
