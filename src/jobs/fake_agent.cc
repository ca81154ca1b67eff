// An agent for tests: keeps the contract of agent/spec.h (lock, journal, log, metrics, stop) and
// does no work. What it is to do stands in the job's hyperparameters:
//
//   work_ms   how long the program "runs" (a stop cuts it short); default 0
//   outcome   completed (default) | failed | die (SIGKILL while it trains) | die-early (SIGKILL
//             before the first report)
//
// Each run adds a byte to the file `starts` of its folder: a job that ran twice has two.
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <csignal>
#include <string>

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

// Whether a stop came within the time.
Result<bool> stopped_within(const fs::path& folder, int milliseconds) {
  const UniqueFd watch{inotify_init1(IN_CLOEXEC)};
  if (inotify_add_watch(watch.get(), folder.c_str(), IN_CREATE | IN_MOVED_TO) < 0) {
    return error_from_errno("inotify_add_watch", errno);
  }
  const Clock& clock = system_clock();
  const auto end = clock.steady() + std::chrono::milliseconds{milliseconds};
  while (!fs::exists(folder / "stop")) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.steady()).count();
    pollfd descriptor{watch.get(), POLLIN, 0};
    if (left <= 0 || poll(&descriptor, 1, static_cast<int>(left)) == 0) return false;
    char notices[4096];
    if (read(watch.get(), notices, sizeof notices) < 0) return error_from_errno("inotify", errno);
  }
  return true;
}

Result<void> count_this_run(const fs::path& folder) {
  const UniqueFd starts = TRY(open_file(folder / "starts", O_WRONLY | O_CREAT | O_APPEND));
  return write_all(starts.get(), "x");
}

Result<void> run(const fs::path& folder) {
  const UniqueFd lock = TRY(lock_file(folder / "agent.lock"));
  const agent::AgentSpec spec = TRY(agent::parse_agent_spec(TRY(read_file(folder / "spec.json"))));
  agent::Journal journal = TRY(agent::Journal::open(folder, system_clock()));
  if (!journal.events().empty()) return {};  // an agent before this one has run the job
  const std::string outcome = hyperparameter(spec, "outcome", "completed");
  if (outcome == "die-early") raise(SIGKILL);

  TRY(journal.append("started", "", R"({"limits":"none: a test"})"));
  TRY(count_this_run(folder));
  TRY(journal.append("downloading", ""));
  TRY(journal.append("training", ""));
  TRY(make_folders(folder / "logs"));
  agent::LogWriter log = TRY(agent::LogWriter::open(folder / "logs" / "algo-1.log"));
  log.append(system_clock().now(), "hello from " + spec.job_name);
  TRY(log.flush());
  TRY(write_file_durably(folder / "metrics.jsonl",
                         "{\"t\":1796022000000,\"n\":\"acc\",\"v\":0.5}\n"
                         "{\"t\":1796022001000,\"n\":\"acc\",\"v\":0.75}\n"));
  const bool stopped = TRY(stopped_within(folder, std::stoi(hyperparameter(spec, "work_ms", "0"))));
  if (outcome == "die") raise(SIGKILL);
  log.append(system_clock().now(), "bye");
  TRY(log.flush());
  if (outcome == "failed" && !stopped) {
    return journal.append("failed", "AlgorithmError: as told, exit code: 1");
  }
  TRY(journal.append("uploading", ""));
  return journal.append(stopped ? "stopped" : "completed", "");
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
