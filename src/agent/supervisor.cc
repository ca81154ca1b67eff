#include "agent/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <vector>

#include "agent/line_cutter.h"

namespace atelier::agent {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::seconds kSyncInterval{1};
constexpr std::chrono::milliseconds kLookInterval{50};
constexpr int kLookShare = 10;
// After the program's end nobody holds the pipe any more; this is for a kernel that is late.
constexpr int kDrainMilliseconds = 2000;

// Which processes of the program are gone that were there when it was first told to end.
class Deaths {
 public:
  explicit Deaths(std::function<std::vector<pid_t>()> processes)
      : processes_(std::move(processes)), living_(processes_()) {}

  std::int64_t died_before() {
    const std::lock_guard lock{mutex_};
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    std::vector<pid_t> living = processes_();
    const bool all = std::ranges::all_of(
        living_, [&](pid_t pid) { return std::ranges::find(living, pid) != living.end(); });
    living_ = std::move(living);
    if (!all) time_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    return time_;
  }

 private:
  const std::function<std::vector<pid_t>()> processes_;
  std::mutex mutex_;
  std::vector<pid_t> living_;
  std::int64_t time_ = 0;
};

class Run {
 public:
  Run(const RunLimits& limits, const StopRequest& stop, JobLog& log,
      const std::function<void(std::string_view)>& on_line)
      : limits_(limits), stop_(stop), log_(log) {
    emit_ = [this, &on_line](std::string_view line) {
      log_.program_line(line);
      if (on_line) on_line(line);
    };
  }

  Result<ProgramEnd> go(compute::SandboxSpec spec) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return error_from_errno("pipe2", errno);
    output_ = UniqueFd{fds[0]};
    UniqueFd write_end{fds[1]};
    fcntl(output_.get(), F_SETFL, O_NONBLOCK);
    // Room for a burst of lines while the log is on its way to the disk; where that is not allowed
    // the usual 64 KiB do.
    fcntl(output_.get(), F_SETPIPE_SZ, 1 << 20);
    spec.output_fd = write_end.get();
    compute::Sandbox sandbox = TRY(compute::Sandbox::start(spec));
    write_end.reset();
    while (!step(sandbox)) {
    }
    drain();
    cutter_.give_out(emit_);
    log_.flush();
    end_.exit = TRY(sandbox.wait());
    end_.killed = end_.exit.signal != 0 || end_.exit.out_of_memory;
    // A stop within the notice is the user's last word: what there is gets uploaded.
    if (end_.asked == ProgramEnd::Asked::kInterrupt && stop_.made()) {
      end_.asked = ProgramEnd::Asked::kStop;
    }
    return end_;
  }

 private:
  // One wait and what follows from it; true once the program has ended.
  bool step(compute::Sandbox& sandbox) {
    pollfd fds[4] = {{sandbox.exit_fd(), POLLIN, 0},
                     {output_open_ ? output_.get() : -1, POLLIN, 0},
                     {stop_.fd(), POLLIN, 0},
                     {end_seen_ ? -1 : limits_.end_fd, POLLIN, 0}};
    poll(fds, 4, timeout());
    // A program may close its output and go on; the end of a pipe would wake us for ever.
    if (fds[1].revents != 0) output_open_ = read_output();
    if (fds[2].revents != 0) stop_.clear();
    if (fds[3].revents != 0) {
      end_seen_ = true;
      limits_.on_end();
    }
    const Steady::time_point now = Steady::now();
    const auto held = cutter_.deadline();
    if (held && now >= *held) {
      cutter_.give_out(emit_);
      log_.flush();
    }
    if (sync_due_ && now >= *sync_due_) {
      log_.sync();
      sync_due_.reset();
    }
    if (fds[0].revents != 0) return true;
    if (look_due_ && now >= *look_due_) look(sandbox);
    ask_for_end(sandbox, now);
    return false;
  }

  void ask_for_end(compute::Sandbox& sandbox, Steady::time_point now) {
    using Asked = ProgramEnd::Asked;
    if (end_.asked == Asked::kNo) {
      if (stop_.made()) {
        end_.asked = Asked::kStop;
      } else if (now >= limits_.deadline) {
        end_.asked = Asked::kMaxRuntime;
      } else if (stop_.interrupted()) {
        end_.asked = Asked::kInterrupt;
        end_.handles_sigterm = sandbox.handles(SIGTERM);
      } else {
        return;
      }
      kill_at_ = now + (end_.asked == Asked::kInterrupt ? limits_.notice : limits_.grace);
      send(sandbox, SIGTERM);
    } else if (kill_at_ && now >= *kill_at_) {
      kill_at_.reset();
      end_.grace_over = true;
      send(sandbox, SIGKILL);
    }
  }

  void look(const compute::Sandbox& sandbox) {
    if (!limits_.look) return;
    const Steady::time_point begin = Steady::now();
    if (!died_before_) {
      const auto deaths = std::make_shared<Deaths>(sandbox.lister());
      died_before_ = [deaths] { return deaths->died_before(); };
    }
    limits_.look(died_before_);
    const Steady::time_point end = Steady::now();
    look_due_ = end + std::max<Steady::duration>(kLookInterval, kLookShare * (end - begin));
  }

  void send(compute::Sandbox& sandbox, int number) {
    look(sandbox);
    const Result<void> sent = sandbox.signal(number);
    if (!sent) log_.note("[atelier] a signal could not be sent: " + sent.error().message);
  }

  [[nodiscard]] int timeout() const {
    std::optional<Steady::time_point> next;
    const auto consider = [&](std::optional<Steady::time_point> time) {
      if (time && (!next || *time < *next)) next = time;
    };
    consider(cutter_.deadline());
    consider(sync_due_);
    consider(look_due_);
    consider(end_.asked == ProgramEnd::Asked::kNo ? limits_.deadline : kill_at_);
    if (!next) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Steady::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
  }

  // What is there now, at most a megabyte, so that a talkative program cannot keep a stop waiting.
  // False at the end of the output.
  bool read_output() {
    for (int round = 0; round < 16; ++round) {
      const ssize_t got = read(output_.get(), buffer_, sizeof buffer_);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        log_.flush();
        return got < 0;
      }
      cutter_.feed({buffer_, static_cast<std::size_t>(got)}, Steady::now(), emit_);
      if (!sync_due_) sync_due_ = Steady::now() + kSyncInterval;
      if (static_cast<std::size_t>(got) < sizeof buffer_) break;
    }
    log_.flush();
    return true;
  }

  void drain() {
    pollfd waiting{output_.get(), POLLIN, 0};
    while (poll(&waiting, 1, kDrainMilliseconds) > 0 && read_output()) {
    }
  }

  const RunLimits& limits_;
  const StopRequest& stop_;
  JobLog& log_;
  LineCutter::Emit emit_;
  LineCutter cutter_;
  UniqueFd output_;
  bool output_open_ = true;
  bool end_seen_ = false;
  ProgramEnd end_;
  std::optional<Steady::time_point> sync_due_, kill_at_, look_due_;
  std::function<std::int64_t()> died_before_;
  char buffer_[64 * 1024];
};

constexpr const char* kEndEarly = "end-early";

}  // namespace

Result<void> end_early(const std::filesystem::path& job_folder, int attempt) {
  return replace_file(job_folder / kEndEarly, std::to_string(attempt));
}

Result<StopRequest> StopRequest::watch(const std::filesystem::path& job_folder, int attempt) {
  UniqueFd fd{inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  if (!fd) return error_from_errno("inotify_init1", errno);
  if (inotify_add_watch(fd.get(), job_folder.c_str(), IN_CREATE | IN_MOVED_TO) < 0) {
    return error_from_errno("watch '" + job_folder.string() + "'", errno);
  }
  return StopRequest{job_folder, attempt, std::move(fd)};
}

bool StopRequest::interrupted() const {
  const Result<std::string> attempt = read_file(interrupt_, 64);
  return attempt && *attempt == attempt_;
}

bool StopRequest::made() const {
  if (::access(file_.c_str(), F_OK) == 0) return true;
  const Result<std::string> attempt = read_file(file_.parent_path() / kEndEarly, 64);
  return attempt && *attempt == attempt_;
}

void StopRequest::clear() const {
  char events[4096];
  while (read(fd_.get(), events, sizeof events) > 0) {
  }
}

Result<ProgramEnd> run_program(compute::SandboxSpec spec, const RunLimits& limits,
                               const StopRequest& stop, JobLog& log,
                               const std::function<void(std::string_view)>& on_line) {
  // On the heap: it holds the read buffer.
  const auto run = std::make_unique<Run>(limits, stop, log, on_line);
  return run->go(std::move(spec));
}

}  // namespace atelier::agent
