#include "agent/job_log.h"

#include <fmt/format.h>

#include <thread>

#include "agent/journal.h"
#include "base/file.h"
#include "base/json.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kLastLines = 12;
constexpr std::size_t kLastLineBytes = 300;
// On a full disk lines wait in memory for room, but not without bound.
constexpr std::size_t kMaxUnwritten = std::size_t{8} << 20;
constexpr std::chrono::milliseconds kRoomLook{250};  // how often a full disk is tried again

}  // namespace

Result<std::unique_ptr<JobLog>> JobLog::open(const std::filesystem::path& job_folder,
                                             const std::string& host,
                                             const std::vector<MetricDefinition>& metrics,
                                             const Clock& clock) {
  TRY(make_folders(job_folder / "logs"));
  LogWriter writer = TRY(LogWriter::open(job_folder / "logs" / (host + ".log")));
  LineFile values = TRY(LineFile::open(job_folder / "metrics.jsonl", "the job's metrics"));
  return std::unique_ptr<JobLog>{
      new JobLog{std::move(writer), std::move(values), MetricMatcher{metrics}, clock}};
}

JobLog::JobLog(LogWriter writer, LineFile metrics, MetricMatcher matcher, const Clock& clock)
    : writer_(std::move(writer)),
      metrics_(std::move(metrics)),
      matcher_(std::move(matcher)),
      clock_(clock) {}

std::optional<Time> JobLog::add(std::string_view line) {
  dirty_ = true;
  if (writer_.pending() + metrics_.pending() > kMaxUnwritten && !flush_locked()) {
    if (dropped_++ == 0) full_ = problem_;
    return std::nullopt;
  }
  return writer_.append(clock_.now(), line);
}

void JobLog::program_line(std::string_view line) {
  const std::scoped_lock lock{mutex_};
  const std::optional<Time> time = add(line);
  if (last_lines_.size() == kLastLines) last_lines_.pop_front();
  last_lines_.emplace_back(line.substr(0, kLastLineBytes));
  matches_.clear();
  matcher_.match(line, matches_);
  for (const MetricMatcher::Match& match : matches_) {
    if (time) {
      metrics_.append(fmt::format(R"({{"t":{},"n":{},"v":{}}})"
                                  "\n",
                                  to_epoch_milliseconds(*time),
                                  json::serialize(json::string{match.name}), match.value));
    }
    final_.insert_or_assign(std::string{match.name}, match.value);
  }
}

void JobLog::note(std::string_view line) {
  const std::scoped_lock lock{mutex_};
  add(line);
  static_cast<void>(flush_locked());
}

void JobLog::flush() {
  const std::scoped_lock lock{mutex_};
  static_cast<void>(flush_locked());
}

Result<void> JobLog::flush_locked() {
  const Result<void> lines = writer_.flush();
  const Result<void> values = metrics_.flush();
  const Result<void>& outcome = lines ? values : lines;
  problem_ = outcome ? "" : outcome.error().message;
  return outcome;
}

void JobLog::sync() {
  const std::scoped_lock lock{mutex_};
  static_cast<void>(sync_locked());
}

Result<void> JobLog::sync_locked() {
  if (!dirty_) return {};
  TRY(flush_locked());
  const Result<void> lines = writer_.sync();
  const Result<void> values = metrics_.sync();
  const Result<void>& outcome = lines ? values : lines;
  dirty_ = !outcome;
  problem_ = outcome ? "" : outcome.error().message;
  return outcome;
}

void JobLog::sync_to_the_end() {
  while (true) {
    {
      const std::scoped_lock lock{mutex_};
      const Result<void> synced = sync_locked();
      if (synced || synced.error().code != Code::kResourceExhausted) return;
    }
    std::this_thread::sleep_for(kRoomLook);
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
  if (dropped_ > 0) {
    return fmt::format(
        "{} lines and their metrics are missing in the log: more than {} MiB waited "
        "for room on the disk ({})",
        dropped_, kMaxUnwritten >> 20, full_);
  }
  return problem_.empty() ? "" : "lines of the log or metrics may be missing: " + problem_;
}

}  // namespace atelier::agent
