// ListTrainingJobs.
#include <algorithm>
#include <array>
#include <charconv>

#include "api/operations.h"
#include "api/text.h"
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

// Pages are written as text: as objects that are then serialized, a hundred jobs took a third of
// the request's time.
void add_name(std::string& out, std::string_view name) {
  out.append(1, '"').append(name).append("\":");
}

void add_text(std::string& out, std::string_view name, std::string_view value) {
  add_name(out, name);
  const bool plain = std::ranges::all_of(
      value, [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; });
  if (plain) {
    out.append(1, '"').append(value).append("\",");
  } else {
    out.append(json::serialize(json::string(to_valid_utf8(std::string(value))))).append(1, ',');
  }
}

void add_time(std::string& out, std::string_view name, Time time) {
  add_name(out, name);
  const std::int64_t value = to_epoch_milliseconds(time);
  std::array<char, 24> digits;
  // Of at least 10^3 milliseconds: the last three digits are those behind the point.
  const char* const end = std::to_chars(digits.begin(), digits.end(), value).ptr;
  if (value >= 1000) {
    out.append(std::string_view(digits.data(), end - 3)).append(1, '.').append(end - 3, end);
  } else {
    out.append(json::serialize(json::value(to_epoch_seconds(time))));
  }
  out += ',';
}

void add_summary(std::string& out, const jobs::JobSummary& job, Time now) {
  out += '{';
  add_text(out, "TrainingJobName", job.name);
  add_text(out, "TrainingJobArn", job.arn);
  add_time(out, "CreationTime", job.created);
  add_time(out, "LastModifiedTime", job.modified);
  add_text(out, "TrainingJobStatus", job.status);
  add_text(out, "SecondaryStatus", job.secondary_status);
  if (job.ended) add_time(out, "TrainingEndTime", *job.ended);
  if (!job.warm.status.empty()) {
    add_name(out, "WarmPoolStatus");
    out.append(json::serialize(warm_pool_document(job.warm, now, {}))).append(1, ',');
  }
  out.back() = '}';
}

}  // namespace

Outcome list_training_jobs(const Call& call) {
  const jobs::ListQuery query = list_query(call.input);
  const auto plan = find_string(call.input, "TrainingPlanArnEquals");
  const auto page = plan ? jobs_of_plan(call, query, *plan) : call.parts.jobs.list(query);
  if (!page) return from_error(page.error());
  const Time now = call.parts.clock.now();
  auto text = std::make_shared<std::string>();
  text->reserve(64 + 400 * page->jobs.size());
  *text += '{';
  if (!page->next_token.empty()) add_text(*text, "NextToken", page->next_token);
  *text += R"("TrainingJobSummaries":[)";
  for (const jobs::JobSummary& job : page->jobs) {
    if (text->back() == '}') *text += ',';
    add_summary(*text, job, now);
  }
  *text += "]}";
  return RenderedJson{std::move(text)};
}

}  // namespace atelier::api
