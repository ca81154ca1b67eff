#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <set>

#include "base/json.h"
#include "cli/connection.h"
#include "cli/cost_table.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace atelier::cli {
namespace {

struct CostOptions {
  std::string data_folder;
  std::string by = "job";
  std::string since;
  std::string until;
  std::string name;
  bool as_json = false;
};

Result<json::array> fetch_costs(ApiClient& api, const CostOptions& options) {
  json::object request{{"MaxResults", 100}};
  const Time now = system_clock().now();
  if (!options.since.empty()) {
    request["CreationTimeAfter"] = to_epoch_seconds(TRY(parse_since(options.since, now)));
  }
  if (!options.until.empty()) {
    request["CreationTimeBefore"] = to_epoch_seconds(TRY(parse_since(options.until, now)));
  }
  if (!options.name.empty()) request["NameContains"] = options.name;
  json::array costs;
  while (true) {
    const json::value page = TRY(api.call("Atelier.ListTrainingJobCosts", request));
    if (const json::array* found = find_array(page, "TrainingJobCosts")) {
      costs.insert(costs.end(), found->begin(), found->end());
    }
    const std::string token = find_string(page, "NextToken").value_or("");
    if (token.empty()) return costs;
    request["NextToken"] = token;
  }
}

json::object to_json(const CostRow& row) {
  json::object out{{"key", row.key},
                   {"jobs", row.jobs},
                   {"training_seconds", row.training_seconds},
                   {"billable_seconds", row.billable_seconds},
                   {"retained_seconds", row.retained_seconds},
                   {"currency", row.currency},
                   {"cost", row.cost},
                   {"saved", row.saved}};
  if (!row.elsewhere_list.empty()) {
    out["elsewhere"] = row.elsewhere;
    out["elsewhere_list"] = row.elsewhere_list;
  }
  return out;
}

std::string hours(std::int64_t seconds) {
  return fmt::format("{:.3f} h", static_cast<double>(seconds) / 3600);
}

void print_rows(const std::vector<CostRow>& rows) {
  std::size_t width = 5;
  for (const CostRow& row : rows) width = std::max(width, printable(row.key).size());
  std::cout << fmt::format("{:<{}}  {:>5}  {:>11}  {:>11}  {:>11}  {:>13}  {:>12}  {:>12}\n", "",
                           width, "jobs", "training", "billable", "kept warm", "cost", "saved",
                           "elsewhere");
  std::set<std::string> lists;
  for (const CostRow& row : rows) {
    const bool compared = !row.elsewhere_list.empty();
    if (compared) lists.insert(row.elsewhere_list);
    std::cout << fmt::format("{:<{}}  {:>5}  {:>11}  {:>11}  {:>11}  {:>13}  {:>12.4f}  {:>12}\n",
                             printable(row.key), width, row.jobs, hours(row.training_seconds),
                             hours(row.billable_seconds), hours(row.retained_seconds),
                             fmt::format("{:.4f} {}", row.cost, printable(row.currency)), row.saved,
                             compared ? fmt::format("{:.4f}", row.elsewhere) : "-");
  }
  for (const std::string& list : lists) std::cout << "elsewhere: " << printable(list) << '\n';
}

Result<int> cost(const CostOptions& options) {
  TRY(check_grouping(options.by));
  ApiClient api{TRY(find_connection(options.data_folder))};
  const json::array costs = TRY(fetch_costs(api, options));
  const std::vector<CostRow> rows = group_costs(costs, options.by);
  if (options.as_json) {
    json::array out;
    for (const CostRow& row : rows) out.push_back(to_json(row));
    std::cout << pretty_json(out) << '\n';
  } else if (rows.empty()) {
    std::cout << "no jobs\n";
  } else {
    print_rows(rows);
  }
  return kOk;
}

}  // namespace

void add_cost(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<CostOptions>();
  CLI::App* verb =
      program.add_subcommand("cost", "What jobs cost, saved, and would cost elsewhere");
  verb->add_option("--data-dir", options->data_folder, "Data folder of the server");
  verb->add_option("--by", options->by, "job, day (UTC), or tag:KEY")->capture_default_str();
  verb->add_option("--since", options->since, "Jobs made after: 2026-11-30, or 7d, 24h, 30m ago");
  verb->add_option("--until", options->until, "Jobs made before, in the same form");
  verb->add_option("--name", options->name, "Only names that contain this");
  verb->add_flag("--json", options->as_json, "For scripts");
  verb->footer(
      "Example: atelier cost --by tag:team --since 7d\n"
      "Prices are those of the instance table (DIR/instances.toml) when the job was made; what "
      "the\n"
      "same time costs elsewhere comes from DIR/prices.toml. docs/spot-training.md shows both.");
  verb->callback([options, &outcome] {
    const Result<int> code = cost(*options);
    outcome.exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace atelier::cli
