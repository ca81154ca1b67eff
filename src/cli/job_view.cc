#include "cli/job_view.h"

#include <fmt/core.h>

#include <iostream>

#include "base/json.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace atelier::cli {
namespace {

Style style_of(const std::string& status) {
  if (status == "Completed") return Style::kGreen;
  if (status == "Failed") return Style::kRed;
  return Style::kYellow;
}

void print_row(std::string_view name, std::string_view value) {
  if (!value.empty()) std::cout << fmt::format("  {:<10} {}\n", name, shown_on_stdout(value));
}

std::string duration(const json::value& job, std::string_view member) {
  const auto seconds = find_int(job, member);
  return seconds ? format_duration(std::chrono::seconds{*seconds}) : "";
}

void print_metrics(const json::value& job) {
  const json::array* metrics = find_array(job, "FinalMetricDataList");
  if (metrics == nullptr) return;
  for (const json::value& metric : *metrics) {
    print_row("metric", fmt::format("{} = {:.6g}", find_string(metric, "MetricName").value_or(""),
                                    find_number(metric, "Value").value_or(0)));
  }
}

}  // namespace

void print_job_summary(const json::value& job) {
  const bool colour = colour_on_stdout();
  const std::string status = find_string(job, "TrainingJobStatus").value_or("");
  std::cout << '\n'
            << styled(find_string(job, "TrainingJobName").value_or(""), Style::kBold, colour)
            << "  " << styled(status, style_of(status), colour);
  const std::string secondary = find_string(job, "SecondaryStatus").value_or("");
  if (secondary != status) std::cout << " (" << secondary << ')';
  std::cout << '\n';
  print_row("reason", find_string(job, "FailureReason").value_or(""));
  if (const json::object* resources = find_object(job, "ResourceConfig")) {
    print_row("instance", find_string(*resources, "InstanceType").value_or(""));
  }
  print_row("training", duration(job, "TrainingTimeInSeconds"));
  print_row("billable", duration(job, "BillableTimeInSeconds"));
  if (const json::object* pool = find_object(job, "WarmPoolStatus")) {
    const std::string by = find_string(*pool, "ReusedByJob").value_or("");
    print_row("warm pool", find_string(*pool, "Status").value_or("") +
                               (by.empty() ? "" : " by " + printable(by)));
  }
  print_metrics(job);
  if (const json::object* artifacts = find_object(job, "ModelArtifacts");
      artifacts != nullptr && status != "InProgress") {
    print_row("model", find_string(*artifacts, "S3ModelArtifacts").value_or(""));
  }
}

void print_job_cost(const json::value& cost) {
  const std::string currency = printable(find_string(cost, "Currency").value_or(""));
  const auto money = [&](const json::value& of, const char* member) {
    return find_number(of, member).value_or(0);
  };
  if (find_bool(cost, "Spot").value_or(false)) {
    print_row("attempts", fmt::format("{} ({} interruptions, {} retries)",
                                      find_int(cost, "Attempts").value_or(1),
                                      find_int(cost, "Interruptions").value_or(0),
                                      find_int(cost, "Retries").value_or(0)));
  }
  if (money(cost, "PricePerHour") > 0) {
    std::string text = fmt::format("{:.4f} {}", money(cost, "Cost"), currency);
    if (money(cost, "Saved") > 0) text += fmt::format(" (saved {:.4f})", money(cost, "Saved"));
    print_row("cost", text);
  }
  const json::array* elsewhere = find_array(cost, "Elsewhere");
  if (elsewhere == nullptr) return;
  for (const json::value& list : *elsewhere) {
    print_row("elsewhere", fmt::format("{:.4f} {}: {} ({})", money(list, "Cost"),
                                       printable(find_string(list, "Currency").value_or("")),
                                       printable(find_string(list, "PriceList").value_or("")),
                                       printable(find_string(list, "PriceDate").value_or(""))));
  }
}

int exit_code_for_job(const json::value& job) {
  const std::string status = find_string(job, "TrainingJobStatus").value_or("");
  if (status == "Failed") return kFailed;
  if (status == "Stopped") return kStopped;
  return kOk;
}

}  // namespace atelier::cli
