// ListTrainingJobs.
#include "api/operations.h"
#include "api/training.h"

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
  query.warm_status_equals = find_string(input, "WarmPoolStatusEquals").value_or("");
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
  return query;
}

// The jobs of a training plan: only their requests know it.
Result<jobs::Page<jobs::JobSummary>> jobs_of_plan(const Call& call, jobs::ListQuery query,
                                                  const std::string& plan) {
  query.filter_id = plan;
  const auto found = TRY(call.parts.jobs.find(query, [&](const jobs::TrainingJob& job) {
    const Result<json::value> request = parse_json(job.request_json);
    const json::object* resources = request ? find_object(*request, "ResourceConfig") : nullptr;
    return resources != nullptr && find_string(*resources, "TrainingPlanArn") == plan;
  }));
  jobs::Page<jobs::JobSummary> page;
  for (const jobs::TrainingJob& job : found.jobs) page.jobs.push_back(jobs::summary_of(job));
  page.next_token = found.next_token;
  return page;
}

void add_summary(json::array& summaries, const jobs::JobSummary& job, Time now) {
  json::object& out = summaries.emplace_back(json::object_kind).get_object();
  out.reserve(8);
  out.emplace("TrainingJobName", job.name);
  out.emplace("TrainingJobArn", job.arn);
  out.emplace("CreationTime", to_epoch_seconds(job.created));
  out.emplace("LastModifiedTime", to_epoch_seconds(job.modified));
  out.emplace("TrainingJobStatus", job.status);
  out.emplace("SecondaryStatus", job.secondary_status);
  if (job.ended) out.emplace("TrainingEndTime", to_epoch_seconds(*job.ended));
  if (!job.warm.status.empty()) {
    out.emplace("WarmPoolStatus", warm_pool_document(job.warm, now, out.storage()));
  }
}

}  // namespace

Outcome list_training_jobs(const Call& call) {
  json::array summaries(call.storage);
  json::object out(call.storage);
  const jobs::ListQuery query = list_query(call.input);
  const auto plan = find_string(call.input, "TrainingPlanArnEquals");
  const auto page = plan ? jobs_of_plan(call, query, *plan) : call.parts.jobs.list(query);
  if (!page) return from_error(page.error());
  summaries.reserve(page->jobs.size());
  const Time now = call.parts.clock.now();
  for (const jobs::JobSummary& job : page->jobs) add_summary(summaries, job, now);
  if (!page->next_token.empty()) out.emplace("NextToken", page->next_token);
  out.emplace("TrainingJobSummaries", std::move(summaries));
  return out;
}

}  // namespace atelier::api
