// The log of a running job with all that hangs on a line: its record, the metrics in it, which have
// the line's time, and the last lines for the words of a failure. Used by the agent's own thread;
// note() from others too.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/log_file.h"
#include "agent/metric_matcher.h"
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
  // Brings what was added to the files. What a full disk does not take waits in memory, up to
  // 8 MiB, and is written by a later call.
  void flush();
  void sync();
  // As sync(), and waits for room on a full disk: after this the lines are there.
  void sync_to_the_end();

  [[nodiscard]] const std::vector<std::string>& metric_warnings() const;
  [[nodiscard]] std::vector<std::string> unmatched_metrics() const;
  [[nodiscard]] std::map<std::string, double> final_metrics() const;
  // The last few lines of the program, in one string; empty when it printed nothing.
  [[nodiscard]] std::string last_lines() const;
  // What is missing in the files, and why; empty when nothing is.
  [[nodiscard]] std::string problem() const;

 private:
  JobLog(LogWriter writer, LineFile metrics, MetricMatcher matcher, const Clock& clock);
  // The time that the line has in the log; none when too much waits for room already.
  std::optional<Time> add(std::string_view line);
  Result<void> flush_locked();
  Result<void> sync_locked();

  mutable std::mutex mutex_;
  LogWriter writer_;
  LineFile metrics_;
  MetricMatcher matcher_;
  const Clock& clock_;
  std::vector<MetricMatcher::Match> matches_;
  std::map<std::string, double, std::less<>> final_;
  std::deque<std::string> last_lines_;
  std::uint64_t dropped_ = 0;  // lines for which there was no room in memory either
  std::string full_;           // the error when the first of them was
  std::string problem_;        // of the last flush or sync
  bool dirty_ = false;
};

}  // namespace atelier::agent
