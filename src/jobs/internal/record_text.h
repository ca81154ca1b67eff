// Parts of a job's record that are read and written whole: each is one text column.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobs/training_job.h"

namespace atelier::jobs::internal {

std::string to_text(const std::vector<std::string>& warnings);
std::string to_text(const std::vector<FinalMetric>& metrics);
std::string to_text(const Terms& terms);
std::string to_text(const Attempts& attempts);
std::string to_text(const WarmPool& pool);  // but for its status, which is a column of its own

// What is damaged or of a later version is left at its default.
std::vector<std::string> warnings_from_text(std::string_view text);
std::vector<FinalMetric> metrics_from_text(std::string_view text);
Terms terms_from_text(std::string_view text);
Attempts attempts_from_text(std::string_view text);
WarmPool warm_from_text(std::string_view status, std::string_view text);

}  // namespace atelier::jobs::internal
