// The other instances of a job, as the agent of the first one sees them: their agents are started
// and kept by it, a stop or an interruption of the job is handed on to them, and one that fails
// ends all. Each has a job folder of its own, below that of the job:
//
//   instances/algo-2/   spec.json, journal.jsonl, logs/, metrics.jsonl, ml/ ... (agent/spec.h)
//   end-early           in the job's folder, once one has failed (agent/supervisor.h)
//
// A journal there ends with the end of the instance's program. What it has left stays until the
// first instance has delivered it.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/instances.h"
#include "agent/spec.h"
#include "base/file.h"
#include "base/result.h"
#include "base/time.h"

namespace atelier::agent {

// Safe from one thread; a thread of its own watches.
class Members {
 public:
  // `program` runs agents. With one instance all calls do nothing.
  static Result<std::unique_ptr<Members>> open(std::filesystem::path job_folder,
                                               const AgentSpec& spec, std::filesystem::path program,
                                               const Clock& clock);
  ~Members();  // agents go on

  [[nodiscard]] bool empty() const { return members_.empty(); }
  // Whether any has begun in this attempt.
  [[nodiscard]] bool begun() const;
  // Starts their agents, and from then on watches them. `spec` is the leader's, complete.
  Result<void> start(const AgentSpec& spec);
  // Asks all that still run for an end, as one that failed does.
  void end_all();
  // Waits for all ends; those of agents that could not be kept alive are failures too. The first
  // call without start() is that of an agent that took over: then all are asked for their end.
  std::vector<InstanceEnd> wait();

 private:
  struct Member {
    std::string host;
    std::filesystem::path folder;
    int launches = 0;
    std::string last_error;
    std::optional<std::chrono::steady_clock::time_point> lacking;  // what a start needs, since then
    std::optional<InstanceEnd> end;
  };

  Members(std::filesystem::path job_folder, const AgentSpec& spec, std::filesystem::path program,
          const Clock& clock);
  Result<void> watch();
  void loop();
  void look();
  void look_at(Member& member);
  void launch(Member& member);
  void hand_on_requests();
  void end_others(const Member* but);

  std::filesystem::path folder_, program_;
  int attempt_;
  const Clock& clock_;
  std::vector<Member> members_;  // the thread's, once it runs
  UniqueFd events_, wake_;
  std::atomic<bool> leaving_ = false, ending_ = false;
  bool told_ = false;
  std::thread thread_;
};

}  // namespace atelier::agent
