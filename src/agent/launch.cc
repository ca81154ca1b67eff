// The agent as a process: starting one that outlives its parent, and what is seen of it from
// outside.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

#include "agent/job_run.h"
#include "agent/journal.h"
#include "agent/spec.h"
#include "base/file.h"
#include "base/log.h"

namespace atelier::agent {
namespace fs = std::filesystem;
namespace {

// The agent writes a byte to this descriptor once it holds its lock.
constexpr const char* kReadyVariable = "ATELIER_AGENT_READY_FD";
constexpr int kReadyFd = 3;
constexpr int kStartMilliseconds = 30000;
constexpr std::string_view kAgain = "again";  // in the file `stop`
// A job's data and model are worth waiting for while the server is away, over a weekend too.
constexpr std::chrono::hours kPatience{72};

struct Start {
  const char* program;
  char** argv;
  char** envp;
  int output_fd, null_fd, ready_fd;
};

// The process between: makes the agent a session of its own, and goes away so that the agent's
// parent is init. Only system calls: the caller may have other threads.
[[noreturn]] void start_detached(const Start& start) {
  if (setsid() < 0) _exit(126);
  const pid_t pid = fork();
  if (pid != 0) _exit(pid < 0 ? 126 : 0);
  sigset_t nothing;
  sigemptyset(&nothing);
  sigprocmask(SIG_SETMASK, &nothing, nullptr);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  umask(022);
  dup2(start.null_fd, 0);
  dup2(start.output_fd, 1);
  dup2(start.output_fd, 2);
  dup2(start.ready_fd, kReadyFd);
  syscall(SYS_close_range, kReadyFd + 1, ~0U, 0U);
  fcntl(kReadyFd, F_SETFD, 0);
  execve(start.program, start.argv, start.envp);
  _exit(127);
}

std::vector<std::string> agent_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    // The server's own keys are no business of an agent; its job's are in the spec.
    if (std::string_view{*variable}.rfind("AWS_", 0) != 0) variables.emplace_back(*variable);
  }
  variables.push_back(fmt::format("{}={}", kReadyVariable, kReadyFd));
  return variables;
}

std::vector<char*> c_strings(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

void report_ready() {
  const char* text = getenv(kReadyVariable);
  if (text == nullptr) return;
  const UniqueFd fd{std::atoi(text)};
  unsetenv(kReadyVariable);
  ignore_error(write_all(fd.get(), "1"), "the launcher may be gone");
}

// agent_alive() of another process holds the lock for a moment to look at it.
Result<UniqueFd> take_lock(const fs::path& job_folder) {
  for (int attempt = 0;; ++attempt) {
    Result<UniqueFd> lock = lock_file(job_folder / "agent.lock");
    if (lock || lock.error().code != Code::kFailedPrecondition || attempt == 40) return lock;
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

Error did_not_start(const fs::path& job_folder, std::string_view how) {
  const std::string output =
      read_file(job_folder / "agent.out", std::size_t{1} << 20).value_or(std::string{});
  const std::size_t start = output.size() > 500 ? output.size() - 500 : 0;
  return Error{Code::kUnavailable,
               fmt::format("the agent of '{}' {}: {}", job_folder.filename().string(), how,
                           output.substr(start))};
}

}  // namespace

Result<void> launch_agent(const fs::path& program, const fs::path& job_folder) {
  if (::access(program.c_str(), X_OK) != 0) {
    return error_from_errno("run '" + program.string() + "'", errno);
  }
  const UniqueFd output =
      TRY(open_file(job_folder / "agent.out", O_WRONLY | O_CREAT | O_APPEND, 0600));
  const UniqueFd null = TRY(open_file("/dev/null", O_RDONLY));
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return error_from_errno("pipe2", errno);
  const UniqueFd ready{fds[0]};
  UniqueFd ready_write{fds[1]};
  const std::string program_text = program.string();
  std::vector<std::string> words{program_text, "agent", "--job-folder", job_folder.string()};
  std::vector<std::string> variables = agent_environment();
  const std::vector<char*> argv = c_strings(words);
  const std::vector<char*> envp = c_strings(variables);
  const Start start{program_text.c_str(),
                    const_cast<char**>(argv.data()),
                    const_cast<char**>(envp.data()),
                    output.get(),
                    null.get(),
                    ready_write.get()};
  const pid_t pid = fork();
  if (pid < 0) return error_from_errno("fork", errno);
  if (pid == 0) start_detached(start);
  ready_write.reset();
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  pollfd waiting{ready.get(), POLLIN, 0};
  if (poll(&waiting, 1, kStartMilliseconds) <= 0) return did_not_start(job_folder, "hangs");
  char byte = 0;
  if (read(ready.get(), &byte, 1) != 1) return did_not_start(job_folder, "did not start");
  return {};
}

bool is_passing(const Error& error) {
  return error.retry == Retry::kYes || error.code == Code::kIo ||
         error.code == Code::kResourceExhausted;
}

bool agent_alive(const fs::path& job_folder) {
  const Result<UniqueFd> fd = open_file(job_folder / "agent.lock", O_RDONLY);
  if (!fd) return false;
  if (flock(fd->get(), LOCK_SH | LOCK_NB) == 0) return false;
  return errno == EWOULDBLOCK;
}

bool needs_cleaning(const fs::path& job_folder) {
  if (::access((job_folder / "tmp").c_str(), F_OK) != 0 || agent_alive(job_folder)) return false;
  const Result<std::vector<JournalEvent>> events = read_journal(job_folder);
  return events && !events->empty() && is_last_event(events->back().kind);
}

Result<void> request_stop(const fs::path& job_folder) {
  return write_file_durably(job_folder / "stop", "");
}

Result<void> request_second_stop(const fs::path& job_folder) {
  return write_file_durably(job_folder / "stop", kAgain);
}

bool second_stop_requested(const fs::path& job_folder) {
  const Result<std::string> words = read_file(job_folder / "stop", 64);
  return words && *words == kAgain;
}

Result<void> request_interrupt(const fs::path& job_folder, int attempt) {
  return write_file_durably(job_folder / "interrupt", std::to_string(attempt));
}

Result<void> run_agent(const fs::path& job_folder) {
  const UniqueFd lock = TRY(take_lock(job_folder));
  report_ready();
  return run_job(
      job_folder,
      [](const objects::S3Endpoint& endpoint, std::function<bool()> cancelled) {
        objects::S3ClientOptions options;
        options.patience = kPatience;
        options.cancelled = std::move(cancelled);
        options.on_unreachable = [](std::string_view words) { log::warning(words); };
        return objects::make_s3_client(endpoint, options);
      },
      system_clock());
}

}  // namespace atelier::agent
