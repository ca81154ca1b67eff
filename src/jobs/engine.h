// What moves jobs: it commits every step, keeps the queue for the host, launches and stops agents,
// and takes in what their journals say. The effects of a step are carried out on one thread of its
// own after the commit; each is safe to repeat, so a crash anywhere between is made good by looking
// at the records and the folders again.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/time.h"
#include "jobs/capacity.h"
#include "jobs/journal_watch.h"
#include "jobs/service.h"
#include "jobs/store.h"
#include "jobs/warm_pools.h"

namespace atelier::jobs {

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(ServiceOptions options, const Clock& clock,
                                                Store& store);
  ~Engine();  // agents go on

  // Takes over what an earlier process left: see Service::open().
  Result<void> adopt();
  // Starts the thread. Before it, steps are committed and their effects wait.
  void run();

  // Commits a new job, with its place on the host or in the queue.
  Result<void> submit(TrainingJob job);
  Result<void> stop(const std::string& name, const std::string& call);
  Result<void> interrupt(const std::string& name, const std::string& why);
  Result<void> change_request(const std::string& name, const RequestChange& change);
  Result<void> remove(const std::string& name);  // see Service::remove()
  std::uint64_t wait_for_change(std::uint64_t seen, std::chrono::milliseconds limit);
  [[nodiscard]] std::filesystem::path folder_of(const std::string& name) const {
    return options_.folder / name;
  }
  [[nodiscard]] std::filesystem::path pool_folder(const std::string& pool) const {
    return options_.warm_folder() / pool;
  }

 private:
  struct Task {
    std::string name;
    Effect effect;
  };
  using Decide = std::function<Result<Step>(TrainingJob)>;

  struct Launches {
    int attempt = 0;
    int count = 0;  // of agents that were started
    std::string last_error;
    // Starts that the host was not up to: since when, and not before when again.
    std::optional<std::chrono::steady_clock::time_point> lacking;
    std::chrono::steady_clock::time_point again{};
    std::chrono::milliseconds pause{0};
  };

  Engine(ServiceOptions options, const Clock& clock, Store& store, JournalWatch watch);

  // Under mutex_: one step of a job, committed, with its effects queued.
  Result<TrainingJob> change(const std::string& name, const Decide& decide);
  // Takes the folder of a removed job out of the way of a new job of that name; the path where it
  // lies now, which is to be deleted.
  Result<std::filesystem::path> set_aside(const std::string& name);
  Result<TrainingJob> happen(const std::string& name, const Event& event);
  // What is due to an agent that runs already.
  static std::vector<Effect> requests_due(const TrainingJob& job);
  void queue_effects(const std::string& name, const std::vector<Effect>& effects);
  void settle(const TrainingJob& before, const TrainingJob& after);
  void settle_pool(const TrainingJob& job);
  bool keep_pool(const TrainingJob& job);
  Result<void> end_pool(const std::string& name);
  void admit_waiting();
  Result<bool> admit_first();
  // A job that gets the warm pool of another one, and that one's record, which is to be saved with
  // it; nothing when no pool fits. After the commit: pool_taken().
  struct TakeOver {
    Step step, left;
    std::uint64_t left_version = 0;  // as it was loaded
  };
  Result<std::optional<TakeOver>> take_over(const TrainingJob& job);
  void pool_taken(const TakeOver& taken);
  Result<bool> admit_to_pool(const Claim& claim);
  void make_room();
  void take_place(const TrainingJob& job);
  void set_deadlines(const TrainingJob& job);
  void notify();

  // On the engine's thread.
  void loop();
  Result<void> carry_out(const Task& task);
  Result<void> launch(const std::string& name);
  Result<void> start_agent(const TrainingJob& job, Launches& launches);
  Result<void> put_off(const TrainingJob& job, Launches& launches, const Error& error);
  void finish_removals();
  Result<void> remove_pool_folder(const TrainingJob& job);
  Result<void> write_spec(const TrainingJob& job);
  Result<void> take_in(const std::string& name);
  Result<void> look_at(const std::string& name);
  Result<void> give_up(const std::string& name, const std::string& cause);
  void look_at_all();
  void clean_up_all();
  void remove_left_pools();
  void pass_deadlines();
  void end_pools_that_are_over();
  [[nodiscard]] std::chrono::steady_clock::time_point wake_time(
      std::chrono::steady_clock::time_point otherwise);
  void attempt(const std::string& name, const Result<void>& outcome);
  std::optional<Task> next_task();

  const ServiceOptions options_;
  const Clock& clock_;
  Store& store_;

  std::mutex mutex_;  // each step from its load to its commit, the queue, and the deadlines
  Capacity capacity_;
  // By the steady clock, so that a wall clock that jumps neither ends nor interrupts a job.
  struct Deadlines {
    std::optional<std::chrono::steady_clock::time_point> wait_over;  // MaxWaitTimeInSeconds
    std::optional<std::chrono::steady_clock::time_point> interrupt;  // of the type's model
    int attempt = 0;                                                 // that `interrupt` is for
  };
  std::map<std::string, Deadlines> deadlines_;
  WarmPools pools_;

  std::mutex tasks_mutex_;
  std::deque<Task> tasks_;
  bool ending_ = false;

  std::mutex changes_mutex_;
  std::condition_variable changed_;
  std::uint64_t changes_ = 0;

  JournalWatch watch_;                        // the engine's thread, but for wake()
  std::map<std::string, Launches> launches_;  // until the job ends; the engine's thread
  bool look_soon_ = false;                    // something failed: do not wait the whole interval
  std::thread thread_;
};

}  // namespace atelier::jobs
