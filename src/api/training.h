// What the training-job operations share: the checks of a request beyond the service model, and the
// notes on members that are kept and shown but change nothing here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/operations.h"
#include "api/reply.h"
#include "jobs/training_job.h"

namespace atelier::api {

// Nothing when a CreateTrainingJob request (valid by the model) can be carried out as it stands; an
// error naming each member that is wrong, or that this version cannot honour.
std::optional<ApiError> check_training_request(const json::value& request);

// A sentence for each member of the request that has no effect here, for the job's status message.
std::vector<std::string> training_request_notes(const json::value& request);

// "Requested resource not found": the words that SageMaker and clients know.
ApiError job_not_found(std::string_view name);

}  // namespace atelier::api
