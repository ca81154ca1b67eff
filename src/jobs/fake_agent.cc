// An agent for tests: keeps the contract of agent/spec.h (lock, journal, log, metrics, stop) and
// does no work. What it is to do stands in the job's hyperparameters:
//
//   work_ms   how long the program "runs" (a stop cuts it short); default 0
//   outcome   completed (default) | failed, or where SIGKILL hits it: die-early (before the first
//             report, each time), die-starting (after it, each time), die (while it trains),
//             die-once (the same, in the first attempt only), die-uploading (the first time that it
//             uploads), die-often (while it trains, having noted 24.5 s of its attempt, and each of
//             its successors); upload-slowly: until it is stopped a second time
//
// Each run of the "program" adds the number of its attempt to the file `starts` of its folder: an
// attempt that ran twice is there twice. In the folder of its warm pool it adds the job's name to
// the file `jobs`. Like the real one, an agent that takes over from a killed one finishes an
// upload, and fails a job whose program was running.
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "agent/attempt_clock.h"
#include "agent/journal.h"
#include "agent/log_file.h"
#include "agent/spec.h"
#include "base/file.h"

namespace atelier::jobs {
namespace {

namespace fs = std::filesystem;

std::string hyperparameter(const agent::AgentSpec& spec, const char* name, const char* otherwise) {
  const auto found = spec.hyperparameters.find(name);
  return found == spec.hyperparameters.end() ? otherwise : found->second;
}

enum class Told { kNothing, kStop, kInterrupt };

Told told(const fs::path& folder, int attempt) {
  if (fs::exists(folder / "stop")) return Told::kStop;
  const bool interrupted = read_file(folder / "interrupt").value_or("") == std::to_string(attempt);
  return interrupted ? Told::kInterrupt : Told::kNothing;
}

// What it was told within the time.
Result<Told> told_within(const fs::path& folder, int attempt, int milliseconds) {
  const UniqueFd watch{inotify_init1(IN_CLOEXEC)};
  if (inotify_add_watch(watch.get(), folder.c_str(), IN_CREATE | IN_MOVED_TO) < 0) {
    return error_from_errno("inotify_add_watch", errno);
  }
  const Clock& clock = system_clock();
  const auto end = clock.steady() + std::chrono::milliseconds{milliseconds};
  while (told(folder, attempt) == Told::kNothing) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.steady()).count();
    pollfd descriptor{watch.get(), POLLIN, 0};
    if (left <= 0 || poll(&descriptor, 1, static_cast<int>(left)) == 0) {
      return Told::kNothing;
    }
    char notices[4096];
    if (read(watch.get(), notices, sizeof notices) < 0) return error_from_errno("inotify", errno);
  }
  return told(folder, attempt);
}

Result<void> count_this_run(const fs::path& folder, int attempt) {
  const UniqueFd starts = TRY(open_file(folder / "starts", O_WRONLY | O_CREAT | O_APPEND));
  return write_all(starts.get(), std::string(1, static_cast<char>('0' + attempt)));
}

Result<void> wait_for_second_stop(const fs::path& folder) {
  const UniqueFd watch{inotify_init1(IN_CLOEXEC)};
  if (inotify_add_watch(watch.get(), folder.c_str(), IN_CREATE | IN_MOVED_TO) < 0) {
    return error_from_errno("inotify_add_watch", errno);
  }
  while (!agent::second_stop_requested(folder)) {
    char notices[4096];
    if (read(watch.get(), notices, sizeof notices) < 0) return error_from_errno("inotify", errno);
  }
  return {};
}

Result<void> finish(agent::Journal& journal, const fs::path& folder, const std::string& outcome) {
  const bool again = journal.find("uploading") != nullptr;
  if (!again) TRY(journal.append("uploading", ""));
  if (outcome == "die-uploading" && !again) raise(SIGKILL);
  if (outcome == "upload-slowly") {
    TRY(wait_for_second_stop(folder));
    return journal.append("stopped", "the rest is here");
  }
  return journal.append(fs::exists(folder / "stop") ? "stopped" : "completed", "");
}

// The part of the program: a log, metrics, and time that passes.
Result<Told> work(const fs::path& folder, const agent::AgentSpec& spec) {
  TRY(count_this_run(folder, spec.attempt));
  if (!spec.warm_pool.empty()) {
    TRY(make_folders(spec.warm_pool));
    const UniqueFd jobs =
        TRY(open_file(fs::path{spec.warm_pool} / "jobs", O_WRONLY | O_CREAT | O_APPEND));
    TRY(write_all(jobs.get(), spec.job_name + "\n"));
  }
  TRY(make_folders(folder / "logs"));
  agent::LogWriter log = TRY(agent::LogWriter::open(folder / "logs" / "algo-1.log"));
  log.append(system_clock().now(), "hello from " + spec.job_name);
  TRY(log.flush());
  TRY(write_file_durably(folder / "metrics.jsonl",
                         "{\"t\":1796022000000,\"n\":\"acc\",\"v\":0.5}\n"
                         "{\"t\":1796022001000,\"n\":\"acc\",\"v\":0.75}\n"));
  const Told told =
      TRY(told_within(folder, spec.attempt, std::stoi(hyperparameter(spec, "work_ms", "0"))));
  log.append(system_clock().now(), "bye");
  TRY(log.flush());
  return told;
}

Result<void> run(const fs::path& folder) {
  const UniqueFd lock = TRY(lock_file(folder / "agent.lock"));
  if (getenv("ATELIER_AGENT_READY_FD") != nullptr) {
    const UniqueFd ready{std::atoi(getenv("ATELIER_AGENT_READY_FD"))};
    TRY(write_all(ready.get(), "1"));
  }
  const agent::AgentSpec spec = TRY(agent::parse_agent_spec(TRY(read_file(folder / "spec.json"))));
  const std::string outcome = hyperparameter(spec, "outcome", "completed");
  if (outcome == "die-early") raise(SIGKILL);
  agent::Journal journal = TRY(agent::Journal::open(folder, system_clock()));
  journal.enter(spec.attempt, spec.journal_floor);
  if (journal.end() != nullptr) return {};
  if (journal.find("uploading") != nullptr) return finish(journal, folder, outcome);
  if (journal.find("training") != nullptr && outcome == "die-often") raise(SIGKILL);
  if (journal.find("training") != nullptr) {
    return journal.append("failed", "InternalServerError: the agent was killed");
  }
  TRY(journal.append("started", "", R"({"limits":"none: a test"})"));
  if (outcome == "die-starting") raise(SIGKILL);
  TRY(journal.append("downloading", ""));
  TRY(journal.append("training", ""));
  const Told told = TRY(work(folder, spec));
  if (outcome == "die-often") {
    const auto ran =
        agent::AttemptClock::start(folder, spec.attempt, std::chrono::milliseconds{24'500});
    if (!ran) return ran.error();
    raise(SIGKILL);
  }
  if (outcome == "die" || (outcome == "die-once" && spec.attempt == 1)) raise(SIGKILL);
  if (told == Told::kInterrupt) return journal.append("interrupted", "");
  if (outcome == "failed" && told == Told::kNothing) {
    return journal.append("failed", "AlgorithmError: as told, exit code: 1");
  }
  return finish(journal, folder, outcome);
}

}  // namespace
}  // namespace atelier::jobs

int main(int count, char** arguments) {
  if (count != 4 || std::string{arguments[1]} != "agent" ||
      std::string{arguments[2]} != "--job-folder") {
    return 2;
  }
  const atelier::Result<void> outcome = atelier::jobs::run(arguments[3]);
  return outcome ? 0 : 1;
}
