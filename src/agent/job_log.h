// The log of a running job with all that hangs on a line: its record, the metrics in it, and the
// last lines for the words of a failure. Used by the agent's own thread; note() from others too.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "agent/log_file.h"
#include "agent/metric_matcher.h"
#include "base/file.h"
#include "base/result.h"
#include "base/time.h"

namespace atelier::agent {

class JobLog {
 public:
  // `host` names the file in the folder's logs/.
  static Result<std::unique_ptr<JobLog>> open(const std::filesystem::path& job_folder,
                                              const std::string& host,
                                              const std::vector<MetricDefinition>& metrics,
                                              const Clock& clock);
  // A line that the program printed.
  void program_line(std::string_view line);
  // A line of our own: no metric is looked for in it.
  void note(std::string_view line);
  // Brings what was added to the files. A full disk is remembered for problem().
  void flush();
  void sync();

  [[nodiscard]] const std::vector<std::string>& metric_warnings() const;
  [[nodiscard]] std::vector<std::string> unmatched_metrics() const;
  [[nodiscard]] std::map<std::string, double> final_metrics() const;
  // The last few lines of the program, in one string; empty when it printed nothing.
  [[nodiscard]] std::string last_lines() const;
  // What kept the log from being written, if anything did.
  [[nodiscard]] std::string problem() const;

 private:
  JobLog(LogWriter writer, UniqueFd metrics, MetricMatcher matcher, const Clock& clock);
  void add(std::string_view line);
  void flush_locked();

  mutable std::mutex mutex_;
  LogWriter writer_;
  UniqueFd metrics_fd_;
  MetricMatcher matcher_;
  const Clock& clock_;
  std::string pending_metrics_;
  std::vector<MetricMatcher::Match> matches_;
  std::map<std::string, double, std::less<>> final_;
  std::deque<std::string> last_lines_;
  std::size_t unwritten_ = 0;  // bytes since the last flush that worked
  std::string problem_;
  bool dirty_ = false;
};

}  // namespace atelier::agent
