// kill -9 of the service at random moments, while jobs are created, run and stopped. After that, a
// new service must know every job that was acknowledged, have run none twice, and bring each to an
// end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <sstream>

#include "base/file.h"
#include "base/rng.h"
#include "jobs/testing.h"

namespace atelier::jobs {
namespace {

constexpr std::uint64_t kRounds = 60;

// Runs the driver and kills it `milliseconds` after its start, or after it has said that it is
// ready (a loaded machine takes longer to start a program than a job takes); what it has printed.
std::string drive_and_kill(const std::filesystem::path& folder, std::uint64_t seed,
                           std::chrono::milliseconds milliseconds, bool from_ready) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd output{ends[0]};
  UniqueFd input{ends[1]};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
  const std::string path = folder.string();
  const std::string text = std::to_string(seed);
  const char* arguments[] = {CRASH_DRIVER, path.c_str(), FAKE_AGENT, text.c_str(), nullptr};
  pid_t child = 0;
  EXPECT_EQ(
      posix_spawn(&child, CRASH_DRIVER, &actions, nullptr, const_cast<char**>(arguments), environ),
      0);
  posix_spawn_file_actions_destroy(&actions);
  input.reset();

  std::string printed;
  auto end = system_clock().steady() + (from_ready ? std::chrono::seconds{30} : milliseconds);
  bool killed = false;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - system_clock().steady());
    pollfd descriptor{output.get(), POLLIN, 0};
    if (!killed && poll(&descriptor, 1, static_cast<int>(std::max<long>(0, left.count()))) == 0) {
      kill(child, SIGKILL);
      killed = true;
    }
    char buffer[4096];
    const ssize_t got = killed || (descriptor.revents != 0)
                            ? read(output.get(), buffer, sizeof buffer)
                            : ssize_t{-1};
    if (got == 0) break;
    if (got > 0) printed.append(buffer, static_cast<std::size_t>(got));
    if (from_ready && printed.starts_with("ready")) {
      from_ready = false;
      end = system_clock().steady() + milliseconds;
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the driver ended by itself: " << printed;
  return printed;
}

TEST(Crash, NoJobIsLostRunTwiceOrLeftBehindWhenTheServiceIsKilledAtRandom) {
  const TempFolder temporary = *TempFolder::create();
  const std::filesystem::path folder = temporary.path() / "jobs";
  std::map<std::string, std::string> acknowledged;  // name to the outcome that it was made for
  int ready = 0;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    // A quarter of them while the store is opened and jobs are adopted, the rest from there to well
    // after the jobs of the round have begun.
    const std::chrono::milliseconds milliseconds{rng(round, 0, 0) % (round % 4 == 0 ? 150 : 400)};
    std::istringstream lines{drive_and_kill(folder, round, milliseconds, round % 4 != 0)};
    std::string word;
    while (lines >> word) {
      if (word == "ready") ++ready;
      if (word != "created") continue;
      std::string name;
      std::string outcome;
      lines >> name >> outcome;
      if (!outcome.empty()) acknowledged[name] = outcome;
    }
  }
  ASSERT_GT(ready, 10) << "most kills came before the service was up: the test says little";
  ASSERT_GT(acknowledged.size(), 20u);

  auto service = Service::open(testing::options_for(folder, FAKE_AGENT, 3), system_clock());
  ASSERT_TRUE(service) << service.error().message;
  (*service)->run();
  std::map<std::string, int> ends;
  int interruptions = 0;
  int taken_pools = 0;
  ListQuery query{.sort_by = ListQuery::SortBy::kCreationTime, .ascending = true};
  do {  // those that were committed but not acknowledged among them
    const Page<JobSummary> page = *(*service)->list(query);
    for (const JobSummary& job : page.jobs) {
      const TrainingJob ended = testing::wait_for_end(**service, job.name);
      EXPECT_TRUE(ended.terminal()) << job.name << " is " << ended.secondary_status;
      ++ends[ended.status];
      const std::string starts = read_file(folder / job.name / "starts").value_or("");
      // One character a run, '1' for the first, ':' for the tenth. An attempt may have ended before
      // its program ran, and none ran twice.
      EXPECT_TRUE(std::ranges::is_sorted(starts) &&
                  std::ranges::adjacent_find(starts) == starts.end())
          << job.name << " ran its attempts " << starts;
      EXPECT_LE(starts.size(), static_cast<std::size_t>(ended.attempts.number)) << job.name;
      EXPECT_TRUE(ended.status != "Completed" ||
                  starts.ends_with(static_cast<char>('0' + ended.attempts.number)))
          << job.name << ": " << starts;
      EXPECT_EQ(ended.attempts.number, 1 + ended.attempts.interruptions + ended.attempts.retries)
          << job.name;
      interruptions += ended.attempts.interruptions;
      if (!ended.warm.of.empty()) {
        ++taken_pools;
        const WarmPool before = (*service)->describe(ended.warm.of)->warm;
        EXPECT_EQ(before.status, "Reused") << job.name;
        EXPECT_EQ(before.reused_by, job.name) << "another one has it, too";
        EXPECT_EQ(before.name, ended.warm.name);
      }
      if (ended.warm.status == "Reused") {
        EXPECT_EQ((*service)->describe(ended.warm.reused_by)->warm.of, job.name);
      }
      const JobTimes times = job_times(ended, *(ended.ended ? ended.ended : ended.modified));
      if (ended.started) {
        EXPECT_LE(times.training, 2 + (*ended.ended - *ended.started) / std::chrono::seconds{1})
            << job.name;
      }
      const auto known = acknowledged.find(job.name);
      if (known == acknowledged.end()) continue;
      // A job that was not stopped ended as it was made to. A lost agent is retried where the
      // request says so, and the next attempt completes the job.
      const bool completes = known->second == "completed" || known->second == "die-uploading" ||
                             (known->second == "die-once" && ended.attempts.number > 1);
      if (!ended.stop_requested) {
        EXPECT_EQ(ended.status, completes ? "Completed" : "Failed")
            << job.name << " (" << known->second << "): " << ended.failure_reason;
      }
      acknowledged.erase(known);
    }
    query.next_token = page.next_token;
  } while (!query.next_token.empty());
  for (const auto& [name, outcome] : acknowledged) ADD_FAILURE() << name << " was lost";
  EXPECT_GT(interruptions, 5) << "the test says little about interruptions";
  RecordProperty("taken_pools", taken_pools);  // how many, is up to the machine's speed
  for (const auto& [status, count] : ends) RecordProperty(status, count);
}

}  // namespace
}  // namespace atelier::jobs
