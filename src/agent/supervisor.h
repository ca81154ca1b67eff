// Runs one program of a job to its end: its output goes to the log line by line, a request to stop
// and the end of its time become SIGTERM and, after the grace period, SIGKILL.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "agent/job_log.h"
#include "base/file.h"
#include "base/result.h"
#include "compute/sandbox.h"

namespace atelier::agent {

// Asks the program of an attempt for its end, as a stop does, on the agent's own account: another
// instance has failed, or the disk is full.
Result<void> end_early(const std::filesystem::path& job_folder, int attempt);

// The files `stop`, `interrupt` and `end-early` in a job's folder, without polling for them.
class StopRequest {
 public:
  static Result<StopRequest> watch(const std::filesystem::path& job_folder, int attempt);
  [[nodiscard]] bool made() const;         // from any thread, as the next three
  [[nodiscard]] bool interrupted() const;  // this attempt is meant
  [[nodiscard]] bool any() const { return made() || interrupted(); }
  [[nodiscard]] bool made_again() const { return second_stop_requested(file_.parent_path()); }
  // Readable when something in the folder changed; clear() before the next wait.
  [[nodiscard]] int fd() const { return fd_.get(); }
  void clear() const;

 private:
  StopRequest(std::filesystem::path folder, int attempt, UniqueFd fd)
      : file_(folder / "stop"),
        interrupt_(folder / "interrupt"),
        attempt_(std::to_string(attempt)),
        fd_(std::move(fd)) {}
  std::filesystem::path file_;
  std::filesystem::path interrupt_;
  std::string attempt_;
  UniqueFd fd_;
};

struct RunLimits {
  std::chrono::steady_clock::time_point deadline;  // MaxRuntime of the job as a whole
  std::chrono::milliseconds grace{120000};
  std::chrono::milliseconds notice{120000};  // the same for an interruption
  // Called right before each signal that the program is sent, and again and again from the first
  // one to its end: what it saves while it is told to end has to be seen whole before it is gone.
  // `died_before`, which may be called from any thread and after run_program(), gives the time
  // (wall clock, nanoseconds) before which a process of the program has died since the first
  // signal; 0: all of them live.
  std::function<void(const std::function<std::int64_t()>& died_before)> look{};
  // `on_end` is called once, when `end_fd` gets readable while the program runs.
  int end_fd = -1;
  std::function<void()> on_end{};
};

struct ProgramEnd {
  compute::SandboxExit exit;
  // A signal ended it, or the kernel ended a part of it for want of memory.
  bool killed = false;
  // Why it was told to end, if it was.
  enum class Asked { kNo, kStop, kMaxRuntime, kInterrupt } asked = Asked::kNo;
  // It took SIGTERM in hand: that it then ended well need not mean that it had finished.
  bool handles_sigterm = false;
  bool grace_over = false;  // it was killed because its time to end by itself was over
};

// `on_line` sees every line, besides the log. Fills output_fd of `spec` itself.
Result<ProgramEnd> run_program(compute::SandboxSpec spec, const RunLimits& limits,
                               const StopRequest& stop, JobLog& log,
                               const std::function<void(std::string_view)>& on_line);

}  // namespace atelier::agent
