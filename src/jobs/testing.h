// What the tests of this folder share: requests, and a service beside the fake agent.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>

#include "base/time.h"
#include "jobs/service.h"

namespace atelier::jobs::testing {

struct TestJob {
  std::string name;
  std::string instance_type = "ml.cpu.1x";
  int work_ms = 0;
  std::string outcome = "completed";
  bool spot = false;
  int max_wait = 3600;  // of a spot job, seconds
  int retries = 0;
  int keep_alive = 0;  // seconds
  std::string role = "r";
};

inline std::string request_for(const TestJob& job) {
  return fmt::format(
      R"({{"TrainingJobName":"{}","RoleArn":"arn:aws:iam::000000000000:role/{}",
          "AlgorithmSpecification":{{"TrainingInputMode":"File",
            "TrainingImage":"000000000000.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.13.1"}},
          "HyperParameters":{{"work_ms":"{}","outcome":"{}"}},
          "OutputDataConfig":{{"S3OutputPath":"s3://out/prefix/"}},
          "ResourceConfig":{{"InstanceType":"{}","InstanceCount":1,"VolumeSizeInGB":1{}}},
          "StoppingCondition":{{"MaxRuntimeInSeconds":{}{}}}{}}})",
      job.name, job.role, job.work_ms, job.outcome, job.instance_type,
      job.keep_alive > 0 ? fmt::format(R"(,"KeepAlivePeriodInSeconds":{})", job.keep_alive) : "",
      std::min(60, job.max_wait),
      job.spot ? fmt::format(R"(,"MaxWaitTimeInSeconds":{})", job.max_wait) : "",
      std::string{job.spot ? R"(,"EnableManagedSpotTraining":true)" : ""} +
          (job.retries > 0
               ? fmt::format(R"(,"RetryStrategy":{{"MaximumRetryAttempts":{}}})", job.retries)
               : ""));
}

inline ServiceOptions options_for(const std::filesystem::path& folder,
                                  const std::filesystem::path& agent_program, double vcpus = 64) {
  ServiceOptions options;
  options.folder = folder;
  options.agent_program = agent_program;
  options.s3 = [] {
    objects::S3Endpoint nowhere;
    nowhere.url = "http://127.0.0.1:1";
    return nowhere;
  };
  options.instances = compute::builtin_instance_table();
  options.host = {vcpus, 1024, 0};
  return options;
}

// Waits, without polling, until `done` holds for the job; its last state either way.
inline TrainingJob wait_until(Service& service, const std::string& name,
                              const std::function<bool(const TrainingJob&)>& done) {
  const auto limit = system_clock().steady() + std::chrono::seconds{30};
  std::uint64_t seen = 0;
  while (true) {
    seen = service.wait_for_change(seen, std::chrono::milliseconds{0});
    Result<TrainingJob> job = service.describe(name);
    if (!job) return {};
    if (done(*job) || system_clock().steady() > limit) return *std::move(job);
    service.wait_for_change(seen, std::chrono::milliseconds{1000});
  }
}

inline TrainingJob wait_for_end(Service& service, const std::string& name) {
  return wait_until(service, name, [](const TrainingJob& job) { return job.terminal(); });
}

}  // namespace atelier::jobs::testing
