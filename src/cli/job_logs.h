// The log streams of a job's instances as one log, by the times of their lines.
#pragma once

#include <boost/json/fwd.hpp>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/connection.h"

namespace atelier::cli {

struct LogLine {
  std::string host;    // "algo-2"
  std::string stream;  // "job/algo-2-1796022355"
  double time = 0;     // milliseconds since 1970
  std::string message;
};

// How many instances a job has, by DescribeTrainingJob.
int instance_count(const boost::json::value& job);
// "algo-2" of "job/algo-2-1796022355"; empty for what is no stream of a job.
std::string host_of_stream(std::string_view stream);
// What stands before a line of one of several instances: "algo-2  | ", as `docker compose logs` has
// it.
std::string line_prefix(std::string_view host, int instances, bool colour);

class JobLogs {
 public:
  // Of the instance of that name, else of all. kNotFound when the job has none of that name.
  static Result<JobLogs> open(ApiClient& api, const boost::json::value& job, std::string instance);

  // Hands on what has been written since the last call, in the order of its times as far as it is
  // there now.
  Result<void> advance(const std::function<void(const LogLine&)>& each);
  // Whether lines of more than one instance come.
  [[nodiscard]] bool mixed() const { return instance_.empty() && instances_ > 1; }
  [[nodiscard]] int instances() const { return instances_; }

 private:
  struct Stream {
    std::string name{};
    std::string token{};
    std::deque<LogLine> lines{};  // that were read and not handed on
    bool at_end = false;
  };
  JobLogs(ApiClient& api, std::string job, int instances, std::string instance)
      : api_(api), job_(std::move(job)), instances_(instances), instance_(std::move(instance)) {}
  // A stream is there with its first line.
  Result<void> find_streams();
  Result<void> fill(const std::string& host, Stream& stream);

  ApiClient& api_;
  std::string job_;
  int instances_;
  std::string instance_;
  std::map<std::string, Stream> streams_;  // by host
};

}  // namespace atelier::cli
