// UpdateTrainingJob and DeleteTrainingJob.
#include <fmt/format.h>

#include "api/operations.h"
#include "api/training.h"
#include "jobs/request_rules.h"

namespace atelier::api {
namespace {

Error refused(std::string message) { return Error{Code::kFailedPrecondition, std::move(message)}; }

// What may change while a job is in which state: a profiler as long as it runs, a remote shell
// while there is a program or its data are on the way, the time that instances are kept warm until
// they are let go.
Result<void> check_state(const jobs::TrainingJob& job, const json::value& update) {
  const bool profiler = find_member(update, "ProfilerConfig") != nullptr ||
                        find_member(update, "ProfilerRuleConfigurations") != nullptr;
  if (profiler && job.status != "InProgress") {
    return refused(
        fmt::format("Profiling of training job '{}' can not be changed: it is {}, and only a job "
                    "that is InProgress is profiled",
                    job.name, job.status));
  }
  if (find_member(update, "RemoteDebugConfig") != nullptr &&
      job.secondary_status != "Downloading" && job.secondary_status != "Training") {
    return refused(
        fmt::format("RemoteDebugConfig of training job '{}' can only be changed while its "
                    "SecondaryStatus is Downloading or Training; it is {}",
                    job.name, job.secondary_status));
  }
  if (find_member(update, "ResourceConfig") != nullptr && job.warm.status != jobs::kWarmInUse &&
      job.warm.status != jobs::kWarmAvailable) {
    const bool none = job.warm.status.empty();
    return refused(fmt::format(
        "KeepAlivePeriodInSeconds of training job '{}' can not be changed: it is {}, and {}",
        job.name, job.status,
        none ? "has no warm pool, for it was created without KeepAlivePeriodInSeconds"
             : fmt::format("its warm pool is {}, not InUse or Available", job.warm.status)));
  }
  return {};
}

// Members of the request that are structures take over what the update names; lists are replaced.
void merge(json::object& request, const json::value& update) {
  for (const auto& [name, value] : update.get_object()) {
    if (name == "TrainingJobName") continue;
    json::value& place = request[name];
    if (!place.is_object() || !value.is_object()) {
      place = value;
      continue;
    }
    for (const auto& [inside, inner] : value.get_object()) {
      place.get_object().insert_or_assign(inside, inner);
    }
  }
}

}  // namespace

Outcome update_training_job(const Call& call) {
  const std::string name = find_string(call.input, "TrainingJobName").value_or("");
  std::string arn;
  const Result<void> changed = call.parts.jobs.change_request(
      name, [&](const jobs::TrainingJob& job, std::string& text) -> Result<bool> {
        arn = job.arn;
        TRY(check_state(job, call.input));
        json::value request = TRY(parse_json(text));
        merge(request.get_object(), call.input);
        TRY(jobs::check_request(request));
        text = json::serialize(request);
        return true;
      });
  if (changed) return json::object{{"TrainingJobArn", arn}};
  if (changed.error().code == Code::kNotFound) return job_not_found(name);
  // A member that is not honoured yet: the request is wrong, not the operation.
  if (changed.error().code == Code::kUnimplemented)
    return validation_error(changed.error().message);
  return from_error(changed.error());
}

Outcome delete_training_job(const Call& call) {
  const std::string name = find_string(call.input, "TrainingJobName").value_or("");
  const Result<void> removed = call.parts.jobs.remove(name);
  if (removed) return json::object{};
  switch (removed.error().code) {
    case Code::kNotFound:
      return job_not_found(name);
    case Code::kFailedPrecondition:
    case Code::kUnavailable:
      return ApiError{400, "ResourceInUse", removed.error().message};
    default:
      return from_error(removed.error());
  }
}

}  // namespace atelier::api
