// Watches a training job from the command line: its states, its log as it appears, and one live
// line for what `progress:` lines of a program say (see docs/life-of-a-training-job.md).
#pragma once

#include <boost/json/fwd.hpp>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "cli/connection.h"

namespace atelier::cli {

struct FollowOptions {
  bool quiet = false;      // no log, no states (for --json)
  std::string instance{};  // whose log: "algo-2"; empty: of all
  std::function<bool()> interrupted = [] { return false; };
};

// Returns DescribeTrainingJob's last answer once the job has ended, or earlier when interrupted.
Result<boost::json::value> follow_job(ApiClient& api, const std::string& name,
                                      const FollowOptions& options);

enum class LogForm { kLines, kTimedLines, kJson };

// The log of a job, or of one instance, to stdout, up to what there is at this moment; kJson is one
// array of {time, stream, message}.
Result<void> print_log(ApiClient& api, const std::string& name, const std::string& instance,
                       LogForm form);

// "progress: phase=head epoch=2/5 step=3/9 ..." as its parts; empty for any other line.
std::map<std::string, std::string> parse_progress(std::string_view line);
// The live line for such parts: "head  epoch 2/5  ███░░  45 %  310 pictures/s  ETA 1 min 35 s".
std::string render_progress(const std::map<std::string, std::string>& parts);

}  // namespace atelier::cli
