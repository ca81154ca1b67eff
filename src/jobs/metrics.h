// The last value of each metric of a job, from the lines that its agent left in metrics.jsonl.
#pragma once

#include <filesystem>
#include <vector>

#include "jobs/training_job.h"

namespace atelier::jobs {

// Adds to `metrics`, which the agent has reported at the end, what the file knows: the time of each
// value, and metrics that a killed agent could not report. Looks at the end of the file only (8
// MiB), so that a job of a million lines ends as quickly as another.
void complete_metrics(const std::filesystem::path& job_folder, std::vector<FinalMetric>& metrics);

}  // namespace atelier::jobs
