#include "jobs/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/spec.h"
#include "base/id.h"
#include "base/log.h"

namespace atelier::jobs {
namespace {

namespace fs = std::filesystem;

}  // namespace

Engine::Engine(ServiceOptions options, const Clock& clock, Store& store, JournalWatch watch)
    : options_(std::move(options)),
      clock_(clock),
      store_(store),
      capacity_(options_.host),
      watch_(std::move(watch)) {}

Result<std::unique_ptr<Engine>> Engine::create(ServiceOptions options, const Clock& clock,
                                               Store& store) {
  JournalWatch watch = TRY(JournalWatch::create());
  return std::unique_ptr<Engine>{new Engine{std::move(options), clock, store, std::move(watch)}};
}

Engine::~Engine() {
  {
    const std::scoped_lock lock(tasks_mutex_);
    ending_ = true;
  }
  watch_.wake();
  if (thread_.joinable()) thread_.join();
}

void Engine::run() {
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
}

// ---- Steps: callers hold mutex_ -----------------------------------------------------------------

Result<TrainingJob> Engine::change(const std::string& name, const Decide& decide) {
  while (true) {
    const TrainingJob before = TRY(store_.load(name));
    Step step = TRY(decide(before));
    if (step.job.version != before.version) {
      const Result<void> saved = store_.save(step.job, before.version);
      if (!saved && saved.error().code == Code::kAborted)
        continue;  // decide again on the new state
      if (!saved) return saved.error();
      notify();
    }
    queue_effects(name, step.effects);
    settle(before, step.job);
    return std::move(step.job);
  }
}

// What a step means for the host and the clock.
void Engine::settle(const TrainingJob& before, const TrainingJob& after) {
  const std::string& name = after.name;
  if (after.terminal()) {
    deadlines_.erase(name);
    if (capacity_.remove(name)) admit_waiting();
    return;
  }
  set_deadlines(after);
  if (after.attempts.interrupt_requested || after.attempts.wait_exceeded || after.stop_requested) {
    capacity_.leaves(name);
  }
  if (before.admitted && !after.admitted) {  // interrupted, or to be tried again
    capacity_.remove(name);
    capacity_.enqueue(claim_of(after));
    admit_waiting();
  }
}

std::vector<Effect> Engine::requests_due(const TrainingJob& job) {
  std::vector<Effect> due = effects_due(job);
  std::erase(due, Effect::kLaunchAgent);
  return due;
}

Result<TrainingJob> Engine::happen(const std::string& name, const Event& event) {
  return change(name,
                [&](TrainingJob job) { return advance(std::move(job), event, clock_.now()); });
}

void Engine::queue_effects(const std::string& name, const std::vector<Effect>& effects) {
  if (effects.empty()) return;
  {
    const std::scoped_lock lock(tasks_mutex_);
    for (const Effect effect : effects) tasks_.push_back({name, effect});
  }
  watch_.wake();
}

// Moves the first of the line onto the host; false when it has to wait on.
Result<bool> Engine::admit_first() {
  const Claim* next = capacity_.next();
  if (next == nullptr) return false;
  const Claim claim = *next;
  const Result<TrainingJob> granted = happen(claim.name, CapacityGranted{});
  if (!granted && granted.error().code != Code::kFailedPrecondition) return granted.error();
  capacity_.remove(claim.name);  // in any case: it runs now, or it has ended
  if (granted) capacity_.hold(claim, granted->attempts.admitted.value_or(clock_.now()));
  return true;
}

void Engine::admit_waiting() {
  while (true) {
    const Result<bool> admitted = admit_first();
    if (!admitted) {
      log::error("queue of jobs: " + admitted.error().message);
      return;  // it is tried again with the next look at all jobs
    }
    if (!*admitted) break;
  }
  make_room();
  if (const Claim* first = capacity_.first_waiting()) {
    const Claim claim = *first;
    const Result<TrainingJob> waits = happen(claim.name, Queued{capacity_.why(claim.share, 0)});
    if (!waits) log::warning("queue of jobs: " + waits.error().message);
  }
}

// On-demand jobs that wait take their room from spot jobs.
void Engine::make_room() {
  for (const Capacity::Interruption& going : capacity_.to_interrupt(clock_.now())) {
    const Result<TrainingJob> warned = happen(
        going.victim,
        InterruptRequested{fmt::format("on-demand job '{}' needs the room", going.wanted_by)});
    // One that uploads, say, goes by itself.
    if (!warned && warned.error().code != Code::kFailedPrecondition) {
      log::warning("making room: " + warned.error().message);
      continue;  // it is tried again with the next look at all jobs
    }
    capacity_.leaves(going.victim);
  }
}

// Kept once set: a wall clock that jumps later moves nothing.
void Engine::set_deadlines(const TrainingJob& job) {
  if (!job.terms.spot) return;
  Deadlines& deadlines = deadlines_[job.name];
  const auto in = [&](Time time) { return clock_.steady() + (time - clock_.now()); };
  if (!deadlines.wait_over && job.terms.max_wait.count() > 0) {
    deadlines.wait_over = in(job.created + job.terms.max_wait);
  }
  if (!job.attempts.admitted) {
    deadlines.interrupt.reset();
  } else if (deadlines.attempt != job.attempts.number) {
    deadlines.attempt = job.attempts.number;
    const auto type = compute::find_instance_type(options_.instances, job.terms.instance_type);
    const auto life =
        type ? compute::next_interruption(*type, job.id, job.attempts.number) : std::nullopt;
    if (life) deadlines.interrupt = in(*job.attempts.admitted + *life);
  }
  watch_.wake();
}

void Engine::notify() {
  {
    const std::scoped_lock lock(changes_mutex_);
    ++changes_;
  }
  changed_.notify_all();
}

std::uint64_t Engine::wait_for_change(std::uint64_t seen, std::chrono::milliseconds limit) {
  std::unique_lock lock(changes_mutex_);
  changed_.wait_for(lock, limit, [&] { return changes_ > seen; });
  return changes_;
}

// ---- From other threads -------------------------------------------------------------------------

Result<void> Engine::submit(TrainingJob job) {
  const std::scoped_lock lock(mutex_);
  const Claim newcomer = claim_of(job);
  const bool admitted = capacity_.admits(newcomer);
  const Event event =
      admitted ? Event{CapacityGranted{}}
               : Event{Queued{capacity_.why(newcomer.share, capacity_.ahead_of(newcomer))}};
  Step step = TRY(advance(std::move(job), event, clock_.now()));
  step.job.id = TRY(store_.insert(step.job));
  take_place(step.job);
  queue_effects(step.job.name, step.effects);
  if (!admitted) make_room();
  notify();
  return {};
}

Result<void> Engine::interrupt(const std::string& name, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  TRY(happen(name, InterruptRequested{why}));
  return {};
}

// Of a job that this engine did not know: on the host or in the queue.
void Engine::take_place(const TrainingJob& job) {
  if (job.admitted) {
    capacity_.hold(claim_of(job), job.attempts.admitted.value_or(job.created));
  } else {
    capacity_.enqueue(claim_of(job));
  }
  if (!requests_due(job).empty()) capacity_.leaves(job.name);
  set_deadlines(job);
}

Result<void> Engine::stop(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  TRY(happen(name, StopRequested{}));
  return {};
}

Result<void> Engine::change_request(const std::string& name, const RequestChange& change) {
  const std::scoped_lock lock(mutex_);
  const TrainingJob job = TRY(store_.load(name));
  std::string request = job.request_json;
  const bool of_the_job = TRY(change(job, request));
  TRY(store_.replace_request(name, job.version, request,
                             of_the_job ? std::optional{clock_.now()} : std::nullopt));
  notify();
  return {};
}

Result<void> Engine::remove(const std::string& name) {
  fs::path aside;
  {
    const std::scoped_lock lock(mutex_);
    const TrainingJob job = TRY(store_.load(name));
    if (!job.terminal()) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("training job '{}' is {}: only a job that is Completed, Failed or "
                               "Stopped can be deleted; stop it first",
                               name, job.status)};
    }
    const fs::path folder = folder_of(name);
    const bool unclean = agent::needs_cleaning(folder);
    if (unclean) TRY(agent::launch_agent(options_.agent_program, folder));
    if (unclean || agent::agent_alive(folder)) {
      return Error{Code::kUnavailable,
                   fmt::format("training job '{}' has ended, and its agent still cleans up: try "
                               "again in a moment",
                               name),
                   Retry::kYes};
    }
    TRY(store_.remove(name, job.version));
    aside = TRY(set_aside(name));
    notify();
  }
  std::error_code failure;
  fs::remove_all(aside, failure);  // what is left goes with the next start
  return {};
}

Result<fs::path> Engine::set_aside(const std::string& name) {
  const fs::path removed = options_.folder / ".removed";
  TRY(make_folders(removed, 0700));
  fs::path aside = removed / fmt::format("{}.{}", name, random_id());
  std::error_code failure;
  fs::rename(folder_of(name), aside, failure);
  if (failure && failure != std::errc::no_such_file_or_directory) {
    return Error{Code::kIo,
                 fmt::format("rename of {}: {}", folder_of(name).string(), failure.message())};
  }
  TRY(store_.forget_removed(name));
  return aside;
}

// Removals that an earlier process was killed in.
void Engine::finish_removals() {
  const Result<std::vector<std::string>> names = store_.removed();
  if (!names) return log::error("removed jobs: " + names.error().message);
  for (const std::string& name : *names) {
    const Result<fs::path> aside = set_aside(name);
    if (!aside) log::error("removed job '" + name + "': " + aside.error().message);
  }
  std::error_code failure;
  fs::remove_all(options_.folder / ".removed", failure);
}

Result<void> Engine::adopt() {
  finish_removals();
  const std::vector<TrainingJob> jobs = TRY(store_.load_active());
  {
    const std::scoped_lock lock(mutex_);
    for (const TrainingJob& job : jobs) take_place(job);
  }
  for (const TrainingJob& job : jobs) {
    if (!job.admitted) continue;
    attempt(job.name, look_at(job.name));
    queue_effects(job.name, requests_due(job));
  }
  const std::scoped_lock lock(mutex_);
  admit_waiting();
  return {};
}

}  // namespace atelier::jobs
