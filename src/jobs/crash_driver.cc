// The process that crash_test.cc kills: a real service that creates and stops jobs without end.
//   jobs_crash_driver FOLDER AGENT SEED
// Prints a line for each create that was acknowledged, in one write each: "created NAME OUTCOME".
#include <unistd.h>

#include <string>

#include "base/file.h"
#include "base/rng.h"
#include "jobs/testing.h"

namespace atelier::jobs {
namespace {

Result<void> drive(const std::string& folder, const std::string& agent, std::uint64_t seed) {
  const auto service = TRY(Service::open(testing::options_for(folder, agent, 6), system_clock()));
  service->run();
  TRY(write_all(STDOUT_FILENO, "ready\n"));
  std::vector<std::string>
      created;  // by this process or an earlier one, and not known to have ended
  ListQuery unfinished{.status_equals = "InProgress", .max_results = 100};
  for (const JobSummary& job : TRY(service->list(unfinished)).jobs) created.push_back(job.name);
  std::uint64_t seen = 0;
  for (std::uint64_t i = 0;; ++i) {
    const auto die = [&](std::uint64_t stream, std::uint64_t sides) {
      return rng(seed, stream, i) % sides;
    };
    testing::TestJob job;
    job.name = fmt::format("job-{}-{}", seed, i);
    job.work_ms = static_cast<int>(die(1, 60));
    static constexpr const char* kOutcomes[] = {
        "completed", "completed", "completed", "completed",     "completed",   "completed",
        "failed",    "die",       "die-once",  "die-uploading", "die-starting"};
    job.outcome = kOutcomes[die(2, std::size(kOutcomes))];
    job.spot = die(5, 8) != 0;
    if (job.spot) job.work_ms *= 4;  // long enough to be interrupted
    job.retries = static_cast<int>(die(6, 3));
    if (!job.spot) job.keep_alive = 600;
    if (i < 5) {  // more would only make the queue long
      TRY(service->create({testing::request_for(job), job.name, "arn:aws:iam::0:user/ada"}));
      TRY(write_all(STDOUT_FILENO, fmt::format("created {} {}\n", job.name, job.outcome)));
      created.push_back(job.name);
    }
    const std::string& some = created[die(4, created.size())];
    if (die(3, 30) == 0) ignore_error(service->stop(some), "it may have ended");
    for (const std::string& name : created) {
      if (die(7, 3) != 0) continue;
      ignore_error(service->interrupt(name, "a test"), "it may not be spot, or not run");
    }
    seen = service->wait_for_change(seen, std::chrono::milliseconds{10});
  }
}

}  // namespace
}  // namespace atelier::jobs

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const auto outcome = atelier::jobs::drive(arguments[1], arguments[2], std::stoull(arguments[3]));
  if (outcome) return 0;
  atelier::ignore_error(
      atelier::write_all(STDOUT_FILENO, "error " + outcome.error().message + "\n"),
      "nobody is left to tell");
  return 1;
}
