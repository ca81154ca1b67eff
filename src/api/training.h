// What the training-job operations share.
#pragma once

#include <string_view>

#include "api/reply.h"

namespace atelier::api {

// "Requested resource not found": the words that SageMaker and clients know.
ApiError job_not_found(std::string_view name);

}  // namespace atelier::api
