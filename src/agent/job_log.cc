#include "agent/job_log.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "agent/journal.h"
#include "base/json.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kLastLines = 12;
constexpr std::size_t kLastLineBytes = 300;
// On a full disk lines wait in memory for room, but not without bound.
constexpr std::size_t kMaxUnwritten = std::size_t{8} << 20;

}  // namespace

Result<std::unique_ptr<JobLog>> JobLog::open(const std::filesystem::path& job_folder,
                                             const std::string& host,
                                             const std::vector<MetricDefinition>& metrics,
                                             const Clock& clock) {
  TRY(make_folders(job_folder / "logs"));
  LogWriter writer = TRY(LogWriter::open(job_folder / "logs" / (host + ".log")));
  UniqueFd fd = TRY(open_file(job_folder / "metrics.jsonl", O_WRONLY | O_CREAT | O_APPEND, 0644));
  return std::unique_ptr<JobLog>{
      new JobLog{std::move(writer), std::move(fd), MetricMatcher{metrics}, clock}};
}

JobLog::JobLog(LogWriter writer, UniqueFd metrics, MetricMatcher matcher, const Clock& clock)
    : writer_(std::move(writer)),
      metrics_fd_(std::move(metrics)),
      matcher_(std::move(matcher)),
      clock_(clock) {}

void JobLog::add(std::string_view line) {
  dirty_ = true;
  if (unwritten_ > kMaxUnwritten) return;
  unwritten_ += line.size() + 16;
  writer_.append(clock_.now(), line);
}

void JobLog::program_line(std::string_view line) {
  const std::scoped_lock lock{mutex_};
  add(line);
  if (last_lines_.size() == kLastLines) last_lines_.pop_front();
  last_lines_.emplace_back(line.substr(0, kLastLineBytes));
  matches_.clear();
  matcher_.match(line, matches_);
  const bool room = pending_metrics_.size() < kMaxUnwritten;
  for (const MetricMatcher::Match& match : matches_) {
    if (room) {
      pending_metrics_ += fmt::format(R"({{"t":{},"n":{},"v":{}}})"
                                      "\n",
                                      to_epoch_milliseconds(clock_.now()),
                                      json::serialize(json::string{match.name}), match.value);
    }
    final_.insert_or_assign(std::string{match.name}, match.value);
  }
}

void JobLog::note(std::string_view line) {
  const std::scoped_lock lock{mutex_};
  add(line);
  flush_locked();
}

void JobLog::flush() {
  const std::scoped_lock lock{mutex_};
  flush_locked();
}

void JobLog::flush_locked() {
  Result<void> written = writer_.flush();
  if (written && !pending_metrics_.empty()) {
    written = write_all(metrics_fd_.get(), pending_metrics_);
    pending_metrics_.clear();
  }
  if (written) {
    unwritten_ = 0;
  } else {
    problem_ = written.error().message;
  }
}

void JobLog::sync() {
  const std::scoped_lock lock{mutex_};
  if (!dirty_) return;
  flush_locked();
  const Result<void> synced = writer_.sync();
  if (synced) {
    dirty_ = false;
  } else {
    problem_ = synced.error().message;
  }
}

const std::vector<std::string>& JobLog::metric_warnings() const { return matcher_.warnings(); }

std::vector<std::string> JobLog::unmatched_metrics() const { return matcher_.unmatched(); }

std::map<std::string, double> JobLog::final_metrics() const {
  return {final_.begin(), final_.end()};
}

std::string JobLog::last_lines() const {
  const std::scoped_lock lock{mutex_};
  std::string text;
  for (const std::string& line : last_lines_) {
    if (!line.empty()) text += (text.empty() ? "" : "\n") + line;
  }
  return valid_utf8(text);
}

std::string JobLog::problem() const {
  const std::scoped_lock lock{mutex_};
  return problem_;
}

}  // namespace atelier::agent
