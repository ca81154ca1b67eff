// The metrics of a job, from the lines that its agent leaves in metrics.jsonl.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "jobs/training_job.h"

namespace atelier::jobs {

// Adds to `metrics`, which the agent has reported at the end, what the file knows: the time of each
// value, and metrics that a killed agent could not report. Looks at the end of the file only (8
// MiB), so that a job of a million lines ends as quickly as another.
void complete_metrics(const std::filesystem::path& job_folder, std::vector<FinalMetric>& metrics);

struct MetricSample {
  Time time{};
  double value = 0;
};

// All values of one metric of a job from `from` (inclusive) to `to` (exclusive), those of each
// instance in their order, one instance after the other; a job without metrics has none. The first
// call that gives false ends it.
Result<void> read_metric(const std::filesystem::path& job_folder, std::string_view name, Time from,
                         Time to, const std::function<bool(const MetricSample&)>& take);

}  // namespace atelier::jobs
