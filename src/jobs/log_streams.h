// A page of the log streams of all jobs. What it reads is bounded by the page, not by how many jobs
// there are: by name the records' index has the order; by the time of the last line, which stands
// in the logs alone, an ended job's record says between which times that line was written.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "jobs/service.h"
#include "jobs/store.h"

namespace atelier::jobs {

// `folder_of` gives the folder of a job by its name.
Result<LogStreamPage> find_log_streams(
    Store& store, const std::function<std::filesystem::path(const std::string&)>& folder_of,
    const LogStreamQuery& query);

}  // namespace atelier::jobs
