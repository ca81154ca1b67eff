// ListTrainingJobs.
#include "api/operations.h"

namespace atelier::api {
namespace {

std::optional<Time> time_at(const json::value& input, std::string_view name) {
  const std::optional<double> seconds = find_number(input, name);
  return seconds ? std::optional(from_epoch_seconds(*seconds)) : std::nullopt;
}

jobs::ListQuery list_query(const json::value& input) {
  using SortBy = jobs::ListQuery::SortBy;
  jobs::ListQuery query;
  query.name_contains = find_string(input, "NameContains").value_or("");
  query.status_equals = find_string(input, "StatusEquals").value_or("");
  query.created_after = time_at(input, "CreationTimeAfter");
  query.created_before = time_at(input, "CreationTimeBefore");
  query.modified_after = time_at(input, "LastModifiedTimeAfter");
  query.modified_before = time_at(input, "LastModifiedTimeBefore");
  const std::string sort = find_string(input, "SortBy").value_or("CreationTime");
  query.sort_by = sort == "Name"     ? SortBy::kName
                  : sort == "Status" ? SortBy::kStatus
                                     : SortBy::kCreationTime;
  query.ascending = find_string(input, "SortOrder").value_or("Ascending") == "Ascending";
  query.max_results = static_cast<std::size_t>(find_int(input, "MaxResults").value_or(10));
  query.next_token = find_string(input, "NextToken").value_or("");
  if (const auto plan = find_string(input, "TrainingPlanArnEquals")) {
    query.filter_id = *plan;
    query.filter = [plan = *plan](const jobs::TrainingJob& job) {
      const Result<json::value> request = parse_json(job.request_json);
      const json::object* resources = request ? find_object(*request, "ResourceConfig") : nullptr;
      return resources != nullptr && find_string(*resources, "TrainingPlanArn") == plan;
    };
  }
  return query;
}

json::object summary_of(const jobs::TrainingJob& job) {
  json::object out{{"TrainingJobName", job.name},
                   {"TrainingJobArn", job.arn},
                   {"CreationTime", to_epoch_seconds(job.created)},
                   {"LastModifiedTime", to_epoch_seconds(job.modified)},
                   {"TrainingJobStatus", job.status},
                   {"SecondaryStatus", job.secondary_status}};
  if (job.ended) out.emplace("TrainingEndTime", to_epoch_seconds(*job.ended));
  return out;
}

}  // namespace

Outcome list_training_jobs(const Call& call) {
  json::array summaries;
  json::object out;
  // No job here has a warm pool, so none equals one that is asked for.
  if (!find_string(call.input, "WarmPoolStatusEquals")) {
    const Result<jobs::JobPage> page = call.parts.jobs.list(list_query(call.input));
    if (!page) return from_error(page.error());
    summaries.reserve(page->jobs.size());
    for (const jobs::TrainingJob& job : page->jobs) summaries.push_back(summary_of(job));
    if (!page->next_token.empty()) out.emplace("NextToken", page->next_token);
  }
  out.emplace("TrainingJobSummaries", std::move(summaries));
  return out;
}

}  // namespace atelier::api
