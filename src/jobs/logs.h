// Log streams and pages of events, as CloudWatch Logs has them, straight from the agents' log
// files. A token is a direction and a byte offset: "f/1234" goes on forward from there, "b/1234"
// backward; tokens stay valid as long as the log.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "jobs/service.h"
#include "jobs/training_job.h"

namespace atelier::jobs {

// Where the agent of the instance `host` writes the lines of its program.
std::filesystem::path log_path(const std::filesystem::path& job_folder, const std::string& host);
// "job/algo-2-1796022355" for algo-2 of the job.
std::string log_stream_of(const TrainingJob& job, const std::string& host);

// Nothing as long as the instance has not written a line.
Result<std::optional<LogStream>> read_log_stream(const TrainingJob& job,
                                                 const std::filesystem::path& job_folder,
                                                 const std::string& host);

// At most 10,000 events and 1 MB. A token that is none is kInvalidArgument.
Result<LogQueryPage> read_log_page(const std::filesystem::path& log, const LogQuery& query);

}  // namespace atelier::jobs
