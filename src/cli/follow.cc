#include "cli/follow.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <thread>
#include <utility>

#include "base/json.h"
#include "base/time.h"
#include "cli/job_logs.h"
#include "cli/terminal.h"

namespace atelier::cli {
namespace {

constexpr std::chrono::milliseconds kPollEvery{300};

// What people see of a job; keeps the live line below everything else.
class Screen {
 public:
  explicit Screen(bool quiet)
      : quiet_(quiet), terminal_(isatty(STDOUT_FILENO) == 1), colour_(colour_on_stdout()) {}
  ~Screen() { clear(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void state(std::string_view status, std::string_view message) {
    if (quiet_) return;
    clear();
    std::cout << styled(fmt::format("{:<12}", status), Style::kCyan, colour_) << ' '
              << shown_on_stdout(message) << std::endl;
  }

  // Of a job with several instances the first one's progress is that of the job.
  void log_line(const LogLine& line, const JobLogs& logs) {
    if (quiet_) return;
    const std::string text = shown_on_stdout(line.message);
    const auto parts = parse_progress(text);
    if (!parts.empty() && terminal_) {
      if (logs.mixed() && line.host != "algo-1") return;
      live_ = render_progress(parts);
      std::fprintf(stdout, "\r\x1b[2K%s", live_.c_str());
      std::fflush(stdout);
      drawn_ = true;
      return;
    }
    clear();
    if (logs.mixed()) std::cout << line_prefix(line.host, logs.instances(), colour_);
    std::cout << text << '\n' << std::flush;
  }

 private:
  void clear() {
    if (drawn_) std::fputs("\r\x1b[2K", stdout);
    drawn_ = false;
  }
  bool quiet_;
  bool terminal_;
  bool colour_;
  bool drawn_ = false;
  std::string live_;
};

bool has_ended(const json::value& job) {
  const std::string status = find_string(job, "TrainingJobStatus").value_or("");
  return status == "Completed" || status == "Failed" || status == "Stopped";
}

// Those not shown yet; the current one only if `last_too`.
void show_new_states(Screen& screen, const json::value& job, bool last_too, std::size_t& shown) {
  const json::array* transitions = find_array(job, "SecondaryStatusTransitions");
  if (transitions == nullptr) return;
  for (; shown + (last_too ? 0 : 1) < transitions->size(); ++shown) {
    const json::value& transition = (*transitions)[shown];
    screen.state(find_string(transition, "Status").value_or(""),
                 find_string(transition, "StatusMessage").value_or(""));
  }
}

// "3/8" as a fraction; nothing for anything else.
double fraction_of(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return -1;
  const double total = std::strtod(text.c_str() + slash + 1, nullptr);
  return total > 0 ? std::strtod(text.c_str(), nullptr) / total : -1;
}

}  // namespace

std::map<std::string, std::string> parse_progress(std::string_view line) {
  static constexpr std::string_view kMark = "progress: ";
  std::map<std::string, std::string> parts;
  if (!line.starts_with(kMark)) return parts;
  line.remove_prefix(kMark.size());
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    if (const std::size_t equals = word.find('='); equals != std::string_view::npos) {
      parts[std::string{word.substr(0, equals)}] = std::string{word.substr(equals + 1)};
    }
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return parts;
}

std::string render_progress(const std::map<std::string, std::string>& parts) {
  const auto part = [&parts](const char* name) {
    const auto found = parts.find(name);
    return found == parts.end() ? std::string{} : found->second;
  };
  std::string text = part("phase");
  if (const std::string epoch = part("epoch"); !epoch.empty()) text += "  epoch " + epoch;
  const std::string step = part("step");
  if (const double fraction = fraction_of(step.empty() ? part("done") : step); fraction >= 0) {
    const int filled = static_cast<int>(std::min(fraction, 1.0) * 20);
    text += "  ";
    for (int i = 0; i < 20; ++i) text += i < filled ? "█" : "░";
    text += fmt::format(" {:3.0f} %", fraction * 100);
  }
  if (const std::string rate = part("images_per_second"); !rate.empty())
    text += "  " + rate + " pictures/s";
  if (const std::string eta = part("eta_seconds"); !eta.empty()) {
    text += "  ETA " + format_duration(std::chrono::seconds{std::strtol(eta.c_str(), nullptr, 10)});
  }
  if (const std::string loss = part("train_loss"); !loss.empty()) text += "  loss " + loss;
  return text;
}

Result<json::value> follow_job(ApiClient& api, const std::string& name,
                               const FollowOptions& options) {
  Screen screen{options.quiet};
  // The job goes on without the server, and so does who looks at it.
  api.wait_for_server(std::chrono::hours{1}, options.interrupted);
  std::optional<JobLogs> logs;
  std::size_t shown = 0;
  while (true) {
    json::value job =
        TRY(api.call("SageMaker.DescribeTrainingJob", json::object{{"TrainingJobName", name}}));
    if (!logs) logs.emplace(TRY(JobLogs::open(api, job, options.instance)));
    // The state is read before the log, so that an ended job's log is complete when it is read
    // last.
    const bool ended = has_ended(job);
    // The last state of an ended job comes below its last line.
    show_new_states(screen, job, !ended, shown);
    if (!options.quiet) {
      TRY(logs->advance([&](const LogLine& line) { screen.log_line(line, *logs); }));
    }
    if (ended) {
      show_new_states(screen, job, true, shown);
      return job;
    }
    if (options.interrupted()) return job;
    std::this_thread::sleep_for(kPollEvery);
  }
}

Result<void> print_log(ApiClient& api, const std::string& name, const std::string& instance,
                       LogForm form) {
  const json::value job =
      TRY(api.call("SageMaker.DescribeTrainingJob", json::object{{"TrainingJobName", name}}));
  JobLogs logs = TRY(JobLogs::open(api, job, instance));
  const bool colour = colour_on_stdout();
  const char* separator = "[\n";
  TRY(logs.advance([&](const LogLine& line) {
    const std::string time =
        format_iso8601(from_epoch_milliseconds(static_cast<std::int64_t>(line.time)), true);
    if (form == LogForm::kJson) {
      std::cout << std::exchange(separator, ",\n")
                << json::serialize(json::object{
                       {"time", time}, {"stream", line.stream}, {"message", line.message}});
    } else {
      if (logs.mixed()) std::cout << line_prefix(line.host, logs.instances(), colour);
      if (form == LogForm::kTimedLines) std::cout << time << "  ";
      std::cout << shown_on_stdout(line.message) << '\n';
    }
  }));
  if (form == LogForm::kJson) std::cout << (*separator == '[' ? "[]\n" : "\n]\n");
  return {};
}

}  // namespace atelier::cli
