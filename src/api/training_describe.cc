// DescribeTrainingJob.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/operations.h"
#include "api/text.h"
#include "api/training.h"
#include "api/validate.h"
#include "jobs/request_rules.h"

namespace atelier::api {
namespace {

constexpr std::size_t kFailureReasonCharacters = 1024;  // of the service model
constexpr std::size_t kFinalMetrics = 40;
constexpr int kDefaultMaxRuntime = 86400;

// The member's object inside of `object`, made when it is not there.
json::object& object_at(json::object& object, std::string_view name) {
  json::value& value = object[name];
  if (!value.is_object()) value.emplace_object();
  return value.get_object();
}

void set_default(json::object& object, std::string_view name, const json::value& value) {
  if (!object.contains(name)) object.emplace(name, value);
}

// What SageMaker adds to an echoed request, and what its clients trip over.
void complete_request(json::object& out, const jobs::TrainingJob& job) {
  // The SDK indexes it.
  set_default(object_at(out, "OutputDataConfig"), "KmsKeyId", "");
  json::object& resources = object_at(out, "ResourceConfig");
  if (const json::value* groups = resources.if_contains("InstanceGroups");
      groups != nullptr && groups->is_array() && groups->get_array().empty()) {
    resources.erase("InstanceGroups");  // present, the SDK sums its instances: none
  }
  set_default(object_at(out, "StoppingCondition"), "MaxRuntimeInSeconds", kDefaultMaxRuntime);
  for (const std::string_view flag :
       {"EnableNetworkIsolation", "EnableInterContainerTrafficEncryption",
        "EnableManagedSpotTraining"}) {
    set_default(out, flag, false);
  }
  out["ModelArtifacts"] = {{"S3ModelArtifacts", job.model_uri}};
  out["ProfilingStatus"] = "Disabled";
}

void add_times(json::object& out, const jobs::TrainingJob& job, Time now) {
  out["CreationTime"] = to_epoch_seconds(job.created);
  out["LastModifiedTime"] = to_epoch_seconds(job.modified);
  if (job.started) {
    out["TrainingStartTime"] = to_epoch_seconds(*job.started);
    const jobs::JobTimes times = jobs::job_times(job, now);
    out["TrainingTimeInSeconds"] = times.training;
    out["BillableTimeInSeconds"] = times.billable;
  }
  if (job.ended) out["TrainingEndTime"] = to_epoch_seconds(*job.ended);
}

// Notes go where SDK users look while they wait: into the first status message, and what was warned
// of on the way also into the last, since the SDK prints each message once. Which limits hold is
// known, and said, when the program starts.
std::string message_of(const jobs::TrainingJob& job, std::size_t position,
                       const json::value& request) {
  const jobs::Transition& transition = job.transitions[position];
  std::string message = transition.message;
  const bool begins = position == 0 || job.transitions[position - 1].status != "Training";
  if (transition.status == "Training" && begins && !job.limits.empty()) {
    message += fmt::format(" Limits: {}.", job.limits);
  }
  std::vector<std::string> notes = job.warnings;
  if (position == 0) {
    const std::vector<std::string> more = jobs::request_notes(request);
    notes.insert(notes.begin(), more.begin(), more.end());
  } else if (position + 1 != job.transitions.size() || !job.terminal()) {
    return message;
  }
  return notes.empty() ? message : fmt::format("{} (note: {})", message, fmt::join(notes, "; "));
}

json::array transitions_of(const jobs::TrainingJob& job, const json::value& request,
                           const json::storage_ptr& storage) {
  json::array out(storage);
  out.reserve(job.transitions.size());
  for (std::size_t i = 0; i < job.transitions.size(); ++i) {
    const jobs::Transition& transition = job.transitions[i];
    json::object& row = out.emplace_back(json::object_kind).get_object();
    row.emplace("Status", transition.status);
    row.emplace("StartTime", to_epoch_seconds(transition.start));
    if (transition.end) row.emplace("EndTime", to_epoch_seconds(*transition.end));
    row.emplace("StatusMessage", message_of(job, i, request));
  }
  return out;
}

json::array metrics_of(const jobs::TrainingJob& job, const json::storage_ptr& storage) {
  json::array out(storage);
  for (const jobs::FinalMetric& metric : job.final_metrics) {
    if (out.size() == kFinalMetrics) break;
    json::object& row = out.emplace_back(json::object_kind).get_object();
    row.emplace("MetricName", metric.name);
    // JSON has no NaN: such a metric shows its name and time only.
    if (std::isfinite(metric.value)) row.emplace("Value", metric.value);
    row.emplace("Timestamp", to_epoch_seconds(metric.time));
  }
  return out;
}

}  // namespace

ApiError job_not_found(std::string_view name) {
  return validation_error(
      fmt::format("Requested resource not found. Could not find training job '{}'.", name));
}

json::object warm_pool_document(const jobs::WarmPool& pool, Time now,
                                const json::storage_ptr& storage) {
  json::object out(storage);
  out.emplace("Status", pool.status);
  if (pool.status != jobs::kWarmInUse) {
    out.emplace("ResourceRetainedBillableTimeInSeconds", jobs::warm_seconds(pool, now));
  }
  if (!pool.reused_by.empty()) out.emplace("ReusedByJob", pool.reused_by);
  return out;
}

Result<json::object> training_job_document(const jobs::TrainingJob& job, const Shape& shape,
                                           Time now, const json::storage_ptr& storage) {
  const Result<json::value> request = parse_json(job.request_json, 64, storage);
  if (!request) return request.error().within("the stored request of " + job.name);

  json::value reply = project(*request, shape, storage);
  json::object& out = reply.get_object();
  out.reserve(shape.members.size());
  out["TrainingJobName"] = job.name;
  out["TrainingJobArn"] = job.arn;
  out["TrainingJobStatus"] = job.status;
  out["SecondaryStatus"] = job.secondary_status;
  if (!job.failure_reason.empty()) {
    out["FailureReason"] = cut_text(job.failure_reason, kFailureReasonCharacters);
  }
  complete_request(out, job);
  add_times(out, job, now);
  if (!job.warm.status.empty() && member_of(shape, "WarmPoolStatus") != nullptr) {
    out["WarmPoolStatus"] = warm_pool_document(job.warm, now, storage);
  }
  out["SecondaryStatusTransitions"] = transitions_of(job, *request, storage);
  if (json::array metrics = metrics_of(job, storage); !metrics.empty()) {
    out["FinalMetricDataList"] = std::move(metrics);
  }
  return std::move(out);
}

Outcome describe_training_job(const Call& call) {
  const std::string name = find_string(call.input, "TrainingJobName").value_or("");
  const auto failure = [&](const Error& error) -> Outcome {
    return error.code == Code::kNotFound ? job_not_found(name) : from_error(error);
  };
  const Result<jobs::RecordVersion> version = call.parts.jobs.version(name);
  if (!version) return failure(version.error());
  if (Descriptions::Text kept = call.described.find(*version)) return RenderedJson{std::move(kept)};

  const Result<jobs::TrainingJob> job = call.parts.jobs.describe(name);
  if (!job) return failure(job.error());
  Result<json::object> document =
      training_job_document(*job, *call.operation.output, call.parts.clock.now(), call.storage);
  if (!document) return from_error(document.error());
  // Times that go on without a new version.
  if (job->attempts.began || job->warm.status == jobs::kWarmAvailable) return *std::move(document);
  const auto text = std::make_shared<const std::string>(to_valid_utf8(json::serialize(*document)));
  call.described.keep({job->id, job->version}, text);
  return RenderedJson{text};
}

}  // namespace atelier::api
