// CreateTrainingJob and StopTrainingJob. What a request must be beyond its service model is said by
// jobs/request_rules.h.
#include <fmt/format.h>

#include "api/operations.h"
#include "api/training.h"

namespace atelier::api {

Outcome create_training_job(const Call& call) {
  const std::string name = find_string(call.input, "TrainingJobName").value_or("");
  const Result<std::string> arn =
      call.parts.jobs.create({json::serialize(call.input), std::string(call.invocation_id),
                              call.caller.creator.empty() ? call.caller.arn : call.caller.creator});
  if (arn) return json::object{{"TrainingJobArn", *arn}};
  if (arn.error().code == Code::kAlreadyExists) {
    return ApiError{400, "ResourceInUse",
                    fmt::format("Training job names must be unique within an AWS account and "
                                "region, and a training job with this name already exists "
                                "(arn:aws:sagemaker:{}:{}:training-job/{})",
                                call.parts.region, call.parts.account, name)};
  }
  // What jobs/ cannot do is said of this request, so it is not the operation that is missing.
  if (arn.error().code == Code::kUnimplemented) return validation_error(arn.error().message);
  return from_error(arn.error());
}

Outcome stop_training_job(const Call& call) {
  const std::string name = find_string(call.input, "TrainingJobName").value_or("");
  const Result<void> stopped = call.parts.jobs.stop(name, std::string(call.invocation_id));
  if (stopped) return json::object{};
  if (stopped.error().code == Code::kNotFound) return job_not_found(name);
  return from_error(stopped.error());
}

}  // namespace atelier::api
