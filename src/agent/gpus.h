// The GPUs of one instance of a job: as many as it was granted, its own until its agent ends.
#pragma once

#include <vector>

#include "agent/job_log.h"
#include "agent/spec.h"
#include "agent/supervisor.h"
#include "base/file.h"
#include "base/result.h"

namespace atelier::agent {

class Gpus {
 public:
  Gpus() = default;
  // All of them or none. Waits for the agent of an ended job that still has one; kCancelled when
  // this job is told to stop meanwhile.
  static Result<Gpus> take(const AgentSpec& spec, const StopRequest& stop, JobLog& log);
  [[nodiscard]] const std::vector<int>& numbers() const { return numbers_; }

 private:
  std::vector<int> numbers_;
  std::vector<UniqueFd> locks_;
};

}  // namespace atelier::agent
