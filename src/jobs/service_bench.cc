// What a caller waits for: create (a commit), describe, and a listing of 100,000 jobs page by page.
// The folder is $TMPDIR, so that the disk can be chosen.
#include <benchmark/benchmark.h>

#include "base/file.h"
#include "jobs/testing.h"
#include "sqlite/sqlite.h"

namespace atelier::jobs {
namespace {

using testing::request_for;

std::unique_ptr<Service> open_service(const std::filesystem::path& folder) {
  return *Service::open(testing::options_for(folder / "jobs", FAKE_AGENT, 1e9), system_clock());
}

void create_job(benchmark::State& state) {
  const TempFolder folder = *TempFolder::create();
  const auto service = open_service(folder.path());  // not run(): the commit alone
  int number = 0;
  for (auto _ : state) {
    service->create({request_for({.name = fmt::format("job-{}", number++)}), "id"}).value();
  }
}
BENCHMARK(create_job)->Unit(benchmark::kMicrosecond)->UseRealTime();

// From the call of create() to a running agent's third report taken in: the program is about to
// start. A process, four commits of ours and three of the agent's lie between.
void create_to_training(benchmark::State& state) {
  const TempFolder folder = *TempFolder::create();
  const auto service = open_service(folder.path());
  service->run();
  int number = 0;
  for (auto _ : state) {
    const std::string name = fmt::format("job-{}", number++);
    service->create({request_for({.name = name}), "id"}).value();
    testing::wait_until(*service, name, [](const TrainingJob& job) {
      return job.secondary_status == "Training" || job.terminal();
    });
    state.PauseTiming();
    testing::wait_for_end(*service, name);
    state.ResumeTiming();
  }
}
BENCHMARK(create_to_training)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(100);

void describe_job(benchmark::State& state) {
  const TempFolder folder = *TempFolder::create();
  const auto service = open_service(folder.path());
  service->run();
  service->create({request_for({.name = "a"}), "id"}).value();
  testing::wait_for_end(*service, "a");
  for (auto _ : state) benchmark::DoNotOptimize(service->describe("a").value());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(describe_job)->Unit(benchmark::kMicrosecond);

// Ended jobs, put in by one statement.
void fill(const std::filesystem::path& file, int count) {
  ignore_error(Store::open(file), "its tables are what we want");
  auto database = *sqlite::Database::open(file);
  database
      .script(fmt::format(
          "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) "
          "INSERT INTO jobs(name, arn, status, secondary_status, failure_reason, created, "
          "modified, "
          "started, ended, model_uri, limits, warnings, final_metrics, invocation_id, log_stream, "
          "vcpus, memory_gib, gpus, admitted, stop_requested, journal_sequence, version) "
          "SELECT 'training-job-' || printf('%06d', i * 7919 % {}), "
          "'arn:aws:sagemaker:us-west-2:000000000000:training-job/x', "
          "CASE i % 3 WHEN 0 THEN 'Failed' ELSE 'Completed' END, 'Completed', '', "
          "1796022000000 + i, 1796022000000 + i, 1796022000000 + i, 1796022000000 + i, "
          "'s3://out/x/output/model.tar.gz', 'rlimits', '', '', 'id', '', 1, 1, 0, 1, 0, 7, 7 "
          "FROM n",
          count, count))
      .value();
}

void list_100000_jobs(benchmark::State& state) {
  const TempFolder folder = *TempFolder::create();
  make_folders(folder.path() / "jobs").value();
  fill(folder.path() / "jobs" / "jobs.db", 100'000);
  const auto service = open_service(folder.path());
  for (auto _ : state) {
    ListQuery query{.sort_by = static_cast<ListQuery::SortBy>(state.range(0)), .max_results = 100};
    std::size_t found = 0;
    do {
      const Page<JobSummary> page = service->list(query).value();
      found += page.jobs.size();
      query.next_token = page.next_token;
    } while (!query.next_token.empty());
    if (found != 100'000) state.SkipWithError("a job is missing");
  }
}
BENCHMARK(list_100000_jobs)
    ->ArgName("sort_by")
    ->DenseRange(0, 2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace atelier::jobs
