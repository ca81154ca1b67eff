// What the training-job operations share.
#pragma once

#include <string_view>

#include "api/reply.h"
#include "api/shapes.h"
#include "base/json.h"
#include "jobs/training_job.h"

namespace atelier::api {

// The job in the words of a reply's shape (DescribeTrainingJobResponse, or TrainingJob of Search).
// Members that the shape lacks may be there too.
Result<json::object> training_job_document(const jobs::TrainingJob& job, const Shape& shape,
                                           Time now, const json::storage_ptr& storage);

// WarmPoolStatus, of a job that has a warm pool.
json::object warm_pool_document(const jobs::WarmPool& pool, Time now,
                                const json::storage_ptr& storage);

// "Requested resource not found": the words that SageMaker and clients know.
ApiError job_not_found(std::string_view name);

}  // namespace atelier::api
