// The engine's thread: it starts agents, takes in what their journals say, and keeps the deadlines.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "agent/attempt_clock.h"
#include "agent/journal.h"
#include "agent/spec.h"
#include "base/log.h"
#include "compute/sandbox.h"
#include "jobs/engine.h"
#include "jobs/leavings.h"
#include "jobs/metrics.h"
#include "jobs/request.h"

namespace atelier::jobs {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLaunches = 3;
constexpr std::chrono::milliseconds kRetryInterval{500};
constexpr std::chrono::milliseconds kLongestPause{30'000};
constexpr std::chrono::seconds kDeadlineAgain{5};
constexpr std::size_t kLastWords = 400;

// The end of the agent's own log: why it died, if it could still say so.
std::string last_words(const fs::path& folder) {
  const Result<std::string> text = read_file(folder / "agent.out", std::size_t{64} << 20);
  if (!text || text->empty()) return {};
  std::string_view end{*text};
  if (end.size() > kLastWords) end.remove_prefix(end.size() - kLastWords);
  while (end.ends_with('\n')) end.remove_suffix(1);
  return fmt::format(" Its own log ends with: {}", end);
}

std::string describe_loss(const TrainingJob& job, const fs::path& folder, int launches,
                          const std::string& last_error) {
  const std::string error = last_error.empty() ? "" : " The last start: " + last_error + ".";
  return fmt::format(
      "{} agents were started and none brought the job to its end. Its last known "
      "state is {} ({}) since {}.{}{}",
      launches, job.secondary_status, job.transitions.back().message,
      format_iso8601(job.transitions.back().start), error, last_words(folder));
}

// Whether an attempt of a job has an agent, or needs none any more. An agent that takes over from a
// killed one finishes what that one had begun, and never runs the program again (agent/job_run.h);
// an agent that still cleans up after the attempt before is waited for: its end is noticed.
Result<bool> is_attended(const fs::path& folder, int attempt) {
  if (agent::agent_alive(folder)) return true;
  const auto events = TRY(agent::read_journal(folder));
  return !events.empty() && events.back().attempt >= attempt &&
         agent::is_last_event(events.back().kind);
}

}  // namespace

std::optional<Engine::Task> Engine::next_task() {
  const std::scoped_lock lock(tasks_mutex_);
  if (tasks_.empty() || ending_) return std::nullopt;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

void Engine::attempt(const std::string& name, const Result<void>& outcome) {
  if (outcome) return;
  if (outcome.error().code == Code::kNotFound) {
    const Result<TrainingJob> job = store_.load(name);
    if (!job && job.error().code == Code::kNotFound) return watch_.remove(name);  // deleted
  }
  log::error(fmt::format("training job '{}': {}", name, outcome.error().message));
  look_soon_ = true;
}

void Engine::loop() {
  using std::chrono::milliseconds;
  clean_up_all();
  auto looked = clock_.steady();
  while (true) {
    pass_deadlines();
    while (const std::optional<Task> task = next_task()) attempt(task->name, carry_out(*task));
    const milliseconds interval =
        look_soon_ ? std::min(kRetryInterval, options_.scan_interval) : options_.scan_interval;
    const auto left =
        std::chrono::ceil<milliseconds>(wake_time(looked + interval) - clock_.steady());
    const Result<JournalWatch::Notices> notices = watch_.wait(std::max(left, milliseconds{0}));
    {
      const std::scoped_lock lock(tasks_mutex_);
      if (ending_) return;
    }
    if (!notices) log::error("watching journals: " + notices.error().message);
    if (notices) {
      for (const std::string& name : notices->journals) attempt(name, take_in(name));
      for (const std::string& name : notices->ended) attempt(name, look_at(name));
    }
    if ((notices && notices->overflow) || clock_.steady() - looked >= interval) {
      look_soon_ = false;
      look_at_all();
      looked = clock_.steady();
    }
  }
}

Result<void> Engine::carry_out(const Task& task) {
  switch (task.effect) {
    case Effect::kLaunchAgent:
      return launch(task.name);
    case Effect::kStopAgent: {
      const TrainingJob job = TRY(store_.load(task.name));
      if (job.terminal() || !job.admitted) return {};
      return job.attempts.stopped_again ? agent::request_second_stop(folder_of(task.name))
                                        : agent::request_stop(folder_of(task.name));
    }
    case Effect::kInterruptAgent: {
      const TrainingJob job = TRY(store_.load(task.name));
      if (!job.attempts.interrupt_requested) return {};
      return agent::request_interrupt(folder_of(task.name), job.attempts.number);
    }
    case Effect::kReleaseCapacity:
      // The host's share went back with the commit; what is left is to stop watching.
      watch_.remove(task.name);
      launches_.erase(task.name);
      return {};
    case Effect::kRemoveWarmPool:
      return remove_pool_folder(TRY(store_.load(task.name)));
  }
  return {};
}

Result<void> Engine::write_spec(const TrainingJob& job) {
  Plan plan = TRY(plan_job(job.request_json,
                           PlanContext{options_.region, options_.account, options_.instances,
                                       options_.runtimes, options_.host},
                           job.created));
  plan.spec.s3 = options_.s3();
  plan.spec.packages = options_.packages;
  plan.spec.host_network = options_.host_network;
  if (options_.give_keys) options_.give_keys(job, plan.spec);
  plan.spec.cache_folder = options_.cache_folder.string();
  plan.spec.cache_bytes = options_.cache_bytes;
  if (!job.warm.name.empty()) plan.spec.warm_pool = pool_folder(job.warm.name).string();
  plan.spec.log_stream = job.log_stream;
  plan.spec.gpu_folder = (options_.folder / ".gpus").string();
  grant(plan, job.vcpus, job.memory_gib, job.gpus);
  plan.spec.attempt = job.attempts.number;
  plan.spec.journal_floor = job.journal_sequence;
  plan.spec.interruption_notice = options_.instances.interruption_notice;
  if (job.attempts.number > 1) plan.spec.max_runtime = runtime_left(job);
  const fs::path folder = folder_of(job.name);
  // Not durable: each launch writes it anew, and the agent syncs the folder with its journal.
  return replace_file(folder / "spec.json", agent::to_json(plan.spec), 0600);
}

Result<void> Engine::launch(const std::string& name) {
  const TrainingJob job = TRY(store_.load(name));
  if (job.terminal() || !job.admitted) return {};
  const fs::path folder = folder_of(name);
  TRY(make_folders(folder));
  // Before the look, so that the end of an agent that is there now is not missed.
  TRY(watch_.add(name, folder));
  if (TRY(is_attended(folder, job.attempts.number))) return take_in(name);
  Launches& launches = launches_[name];
  if (launches.attempt != job.attempts.number) {
    launches = {};
    launches.attempt = job.attempts.number;
  }
  const auto now = clock_.steady();
  const bool out_of_patience = launches.lacking && now - *launches.lacking > agent::kLaunchPatience;
  if (launches.count == kMaxLaunches || out_of_patience) {
    return give_up(name, describe_loss(job, folder, launches.count, launches.last_error));
  }
  if (now < launches.again) {
    look_soon_ = true;
    return {};
  }
  TRY(start_agent(job, launches));
  return take_in(name);
}

// Counts agents alone that came to be: what the host lacks for a moment costs a job nothing.
Result<void> Engine::start_agent(const TrainingJob& job, Launches& launches) {
  const fs::path folder = folder_of(job.name);
  const Result<void> written = write_spec(job);
  if (!written && !agent::is_passing(written.error())) {
    return give_up(job.name, "the job cannot be started: " + written.error().message);
  }
  if (!written) return put_off(job, launches, written.error());
  const Result<void> launched = agent::launch_agent(options_.agent_program, folder);
  if (!launched && agent::is_passing(launched.error())) {
    return put_off(job, launches, launched.error());
  }
  launches.lacking.reset();
  ++launches.count;
  if (!launched && !TRY(is_attended(folder, job.attempts.number))) {
    launches.last_error = launched.error().message;
    return launched.error().within("start of the agent");
  }
  return {};
}

Result<void> Engine::put_off(const TrainingJob& job, Launches& launches, const Error& error) {
  const auto now = clock_.steady();
  if (!launches.lacking) launches.lacking = now;
  launches.pause = std::clamp(launches.pause * 2, kRetryInterval, kLongestPause);
  launches.again = now + launches.pause;
  launches.last_error = error.message;
  {
    const std::scoped_lock lock(mutex_);
    TRY(happen(job.name, LaunchDelayed{error.message}));
  }
  return error.within("start of the agent, which is tried again");
}

Result<void> Engine::take_in(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  const fs::path folder = folder_of(name);
  TRY(change(name, [&](TrainingJob job) -> Result<Step> {
    Step taken{std::move(job), {}};
    if (taken.job.terminal()) return taken;
    for (agent::JournalEvent& event :
         TRY(agent::read_journal(folder, taken.job.journal_sequence))) {
      Step step =
          TRY(advance(std::move(taken.job),
                      AgentEvent{event.sequence, std::move(event.kind), std::move(event.message),
                                 std::move(event.detail_json), event.time, event.attempt},
                      clock_.now()));
      taken.job = std::move(step.job);
      taken.effects.insert(taken.effects.end(), step.effects.begin(), step.effects.end());
      if (taken.job.terminal() || !taken.job.admitted) break;
    }
    if (taken.job.terminal()) complete_metrics(folder, taken.job.final_metrics);
    return taken;
  }));
  return {};
}

// Takes in what the folder says, and draws the conclusion when there is no agent any more.
Result<void> Engine::look_at(const std::string& name) {
  const fs::path folder = folder_of(name);
  std::error_code failure;
  if (!watch_.watches(name) && fs::exists(folder, failure)) TRY(watch_.add(name, folder));
  // In this order: an agent that is gone now has written all that it ever will.
  const bool alive = agent::agent_alive(folder);
  TRY(take_in(name));
  const TrainingJob job = TRY(store_.load(name));
  if (!alive && !job.terminal()) queue_effects(name, effects_due(job));  // an agent is due, again
  return {};
}

Result<void> Engine::give_up(const std::string& name, const std::string& cause) {
  const std::scoped_lock lock(mutex_);
  const fs::path folder = folder_of(name);
  TRY(change(name, [&](TrainingJob job) -> Result<Step> {
    const auto ran = agent::AttemptClock::read(folder, job.attempts.number);
    Step step = TRY(advance(std::move(job), AgentLost{cause, ran}, clock_.now()));
    complete_metrics(folder, step.job.final_metrics);
    return step;
  }));
  return {};
}

// Jobs whose agents were killed after the last event, while they cleaned up. Once a start: what is
// left harms nobody until then.
void Engine::clean_up_all() {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(options_.folder, failure)) {
    // What a link leads to is not ours to clean.
    if (!fs::is_directory(entry.symlink_status(failure))) continue;
    if (!agent::needs_cleaning(entry.path())) continue;
    const Result<void> launched = agent::launch_agent(options_.agent_program, entry.path());
    if (!launched) log::warning("cleaning up: " + launched.error().message);
  }
  // Control groups of jobs whose agents are all dead; those of other servers' jobs are not ours.
  for (const std::string& name : compute::names_with_leavings()) {
    if (fs::exists(folder_of(name), failure) && !agent::agent_alive(folder_of(name))) {
      compute::remove_leavings(name);
    }
  }
  remove_left_pools();
}

// Folders of pools that are over: their removal was cut off. Listed before the records are read,
// for a folder is made after the record of its job. One that no record names stays: records go
// after their pools (remove()), so these are of records that were lost.
void Engine::remove_left_pools() {
  const Result<std::vector<std::string>> there = names_with_id(options_.warm_folder());
  if (!there) return log::error("warm pools: " + there.error().message);
  if (there->empty()) return;
  std::set<std::string> held;
  for (const auto& load : {&Store::load_active, &Store::load_warm}) {
    const Result<std::vector<TrainingJob>> jobs = (store_.*load)();
    if (!jobs) return log::error("warm pools: " + jobs.error().message);
    for (const TrainingJob& job : *jobs) held.insert(job.warm.name);
  }
  for (const std::string& name : *there) {
    if (held.contains(name)) continue;
    const Result<bool> over = store_.has_terminated_pool(name);
    if (!over) return log::error("warm pools: " + over.error().message);
    if (!*over) {
      log::warning(
          fmt::format("'{}' is a warm pool of no job that is known, and is kept: if "
                      "jobs.db is an older copy, restore the newer one; if nobody misses "
                      "the pool, remove it",
                      pool_folder(name).string()));
      continue;
    }
    const Result<void> removed = remove_tree(pool_folder(name));
    if (!removed) log::error("warm pools: " + removed.error().message);
  }
}

std::chrono::steady_clock::time_point Engine::wake_time(
    std::chrono::steady_clock::time_point otherwise) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [name, deadlines] : deadlines_) {
    if (deadlines.wait_over) otherwise = std::min(otherwise, *deadlines.wait_over);
    if (deadlines.interrupt) otherwise = std::min(otherwise, *deadlines.interrupt);
  }
  return std::min(otherwise, pools_.next_end().value_or(otherwise));
}

void Engine::end_pools_that_are_over() {
  const auto now = clock_.steady();
  for (const std::string& name : pools_.over(now)) {
    const Result<void> ended = end_pool(name);
    if (ended) continue;
    log::error(fmt::format("warm pool of training job '{}': {}", name, ended.error().message));
    pools_.put_off(name, now + kDeadlineAgain);
  }
}

// A deadline that cannot be acted on, for the disk is full, say, is tried again.
void Engine::pass_deadlines() {
  const std::scoped_lock lock(mutex_);
  end_pools_that_are_over();
  const auto now = clock_.steady();
  std::vector<std::pair<std::string, Event>> due;
  for (auto& [name, deadlines] : deadlines_) {
    if (deadlines.wait_over && *deadlines.wait_over <= now) {
      deadlines.wait_over = now + kDeadlineAgain;
      due.emplace_back(name, WaitExceeded{});
    }
    if (deadlines.interrupt && *deadlines.interrupt <= now) {
      deadlines.interrupt = now + kDeadlineAgain;
      due.emplace_back(name, InterruptRequested{"the instance type's interruption model"});
    }
  }
  for (const auto& [name, event] : due) {
    const Result<TrainingJob> passed = happen(name, event);
    if (!passed && passed.error().code != Code::kFailedPrecondition) {
      log::error(fmt::format("training job '{}': {}", name, passed.error().message));
      continue;
    }
    const auto deadlines = deadlines_.find(name);
    if (std::holds_alternative<InterruptRequested>(event) && deadlines != deadlines_.end()) {
      deadlines->second.interrupt.reset();
    }
  }
}

void Engine::look_at_all() {
  const Result<std::vector<TrainingJob>> jobs = store_.load_active();
  if (!jobs) {
    log::error("look at all jobs: " + jobs.error().message);
    look_soon_ = true;
    return;
  }
  for (const TrainingJob& job : *jobs) {
    if (!job.admitted) continue;
    attempt(job.name, look_at(job.name));
    for (const Effect effect : requests_due(job)) attempt(job.name, carry_out({job.name, effect}));
  }
  const std::scoped_lock lock(mutex_);
  for (const std::string& name : pools_.without_owner()) {
    log::info(fmt::format("the warm pool of job '{}' ends with the keys of who made it", name));
    attempt(name, end_pool(name));
  }
  admit_waiting();
}

}  // namespace atelier::jobs
