// Atelier's own operations: interrupting a spot job, and what jobs cost.
#include <algorithm>
#include <cmath>

#include "api/operations.h"
#include "api/training.h"
#include "jobs/cost.h"

namespace atelier::api {
namespace {

json::array elsewhere_of(const jobs::TrainingJob& job, const Parts& parts, Time now) {
  json::array out;
  for (const compute::PriceList& list : parts.jobs.price_lists()) {
    const auto price = list.price_per_hour.find(job.terms.instance_type);
    if (price == list.price_per_hour.end()) continue;
    out.push_back(json::object{{"PriceList", list.name},
                               {"PriceDate", list.date},
                               {"Currency", list.currency},
                               {"PricePerHour", price->second},
                               {"Cost", jobs::cost_at(job, price->second, now)}});
  }
  return out;
}

json::object cost_reply(const jobs::TrainingJob& job, const Parts& parts) {
  const Time now = parts.clock.now();
  const jobs::Cost cost = jobs::cost_of(job, now);
  json::object out{{"TrainingJobName", job.name},
                   {"TrainingJobStatus", job.status},
                   {"CreationTime", to_epoch_seconds(job.created)},
                   {"InstanceType", job.terms.instance_type},
                   {"InstanceCount", job.terms.instance_count},
                   {"Spot", job.terms.spot},
                   {"Attempts", job.attempts.number},
                   {"Interruptions", job.attempts.interruptions},
                   {"Retries", job.attempts.retries},
                   {"TrainingTimeInSeconds", cost.times.training},
                   {"BillableTimeInSeconds", cost.times.billable},
                   {"ResourceRetainedBillableTimeInSeconds", cost.retained},
                   {"PricePerHour", job.terms.price_per_hour},
                   {"Currency", job.terms.currency},
                   {"Cost", cost.cost},
                   {"Saved", cost.saved},
                   {"Elsewhere", elsewhere_of(job, parts, now)}};
  if (job.terms.spot) out.emplace("SpotPricePerHour", job.terms.spot_price_per_hour);
  const Result<json::value> request = parse_json(job.request_json);
  const json::array* tags = request ? find_array(*request, "Tags") : nullptr;
  out.emplace("Tags", tags != nullptr ? *tags : json::array{});
  return out;
}

std::optional<Time> time_at(const json::value& input, std::string_view name) {
  const std::optional<double> seconds = find_number(input, name);
  return seconds ? std::optional(from_epoch_seconds(*seconds)) : std::nullopt;
}

Outcome job_error(const Error& error, const std::string& name) {
  if (error.code == Code::kNotFound) return job_not_found(name);
  return from_error(error);
}

}  // namespace

Outcome interrupt_training_job(const Call& call) {
  const std::string name = find_string(call.input, "TrainingJobName").value_or("");
  const std::string why =
      find_string(call.input, "Reason").value_or("asked for by " + call.caller.access_key);
  const Result<void> interrupted = call.parts.jobs.interrupt(name, why);
  if (!interrupted) return job_error(interrupted.error(), name);
  return json::object{};
}

Outcome describe_training_job_cost(const Call& call) {
  const std::string name = find_string(call.input, "TrainingJobName").value_or("");
  const Result<jobs::TrainingJob> job = call.parts.jobs.describe(name);
  if (!job) return job_error(job.error(), name);
  return cost_reply(*job, call.parts);
}

Outcome list_training_job_costs(const Call& call) {
  jobs::ListQuery query;
  query.created_after = time_at(call.input, "CreationTimeAfter");
  query.created_before = time_at(call.input, "CreationTimeBefore");
  query.name_contains = find_string(call.input, "NameContains").value_or("");
  query.max_results = static_cast<std::size_t>(find_int(call.input, "MaxResults").value_or(100));
  query.next_token = find_string(call.input, "NextToken").value_or("");
  const Result<jobs::Page<jobs::TrainingJob>> page =
      call.parts.jobs.find(query, jobs::every_job);  // whole: the tags are in their requests
  if (!page) return from_error(page.error());
  json::array costs;
  for (const jobs::TrainingJob& job : page->jobs) costs.push_back(cost_reply(job, call.parts));
  json::object out{{"TrainingJobCosts", std::move(costs)}};
  if (!page->next_token.empty()) out.emplace("NextToken", page->next_token);
  return out;
}

}  // namespace atelier::api
