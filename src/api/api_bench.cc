// What a signed call costs in process, from the head to the reply: signature, validation, the
// operation on a job in memory, JSON. The figure to hold against S3 of the targets (10,000 signed
// Describe/s on one core), less what the socket and the store take.
#include <benchmark/benchmark.h>

#include "api/internal/fake_parts.h"

namespace atelier::api {
namespace {

void call_again(benchmark::State& state, std::string_view operation, const std::string& body) {
  internal::FakeWorld world;
  world.call("CreateTrainingJob", json::serialize(internal::training_request()));
  const http::RequestHead head =
      world.json_head("sagemaker", fmt::format("SageMaker.{}", operation), body);
  for (auto _ : state) {
    const http::Response response = world.send(head, body);
    if (response.status != 200) state.SkipWithError("not answered");
    benchmark::DoNotOptimize(response);
  }
  state.SetItemsProcessed(state.iterations());
}

void BM_SignedDescribe(benchmark::State& state) {
  call_again(state, "DescribeTrainingJob", R"({"TrainingJobName":"job-1"})");
}
BENCHMARK(BM_SignedDescribe);

void BM_SignedCreateAgain(benchmark::State& state) {
  call_again(state, "CreateTrainingJob", json::serialize(internal::training_request()));
}
BENCHMARK(BM_SignedCreateAgain);

void BM_SignedList(benchmark::State& state) { call_again(state, "ListTrainingJobs", "{}"); }
BENCHMARK(BM_SignedList);

}  // namespace
}  // namespace atelier::api
