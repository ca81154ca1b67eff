#include "jobs/engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "agent/spec.h"
#include "base/file.h"
#include "base/id.h"
#include "base/json.h"
#include "base/log.h"
#include "base/own_folder.h"
#include "jobs/job_access.h"
#include "jobs/leavings.h"
#include "jobs/request.h"

namespace atelier::jobs {
namespace {

namespace fs = std::filesystem;

WarmPools::IsOwner owners_by(const ServiceOptions& options) {
  if (!options.user_ids) return {};
  return [user_ids = options.user_ids](const std::string& created_by, const std::string& owner) {
    const std::vector<std::string> ids = user_ids(root_of(created_by));
    return std::ranges::find(ids, owner) != ids.end();
  };
}

}  // namespace

Engine::Engine(ServiceOptions options, const Clock& clock, Store& store, JournalWatch watch)
    : options_(std::move(options)),
      clock_(clock),
      store_(store),
      capacity_(options_.host),
      pools_(owners_by(options_)),
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
    settle_pool(after);
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

// The share of a job that has ended: kept for one that may come, or free.
void Engine::settle_pool(const TrainingJob& job) {
  if (job.warm.status == kWarmAvailable) {
    if (keep_pool(job)) admit_waiting();  // perhaps it is one that waits
    return;
  }
  pools_.remove(job.name);
  if (capacity_.remove(job.name)) admit_waiting();
}

// Of a job whose pool is Available; false where it was known, and only its period may have changed.
bool Engine::keep_pool(const TrainingJob& job) {
  const bool is_new = !pools_.holds(job.name);
  const Time since = job.warm.available.value_or(job.modified);
  pools_.keep(job, clock_.steady() - std::max(clock_.now() - since, Time::duration{0}));
  if (is_new) capacity_.keep(claim_of(job), since);
  watch_.wake();
  return is_new;
}

// One that the records do not know as Available is forgotten.
Result<void> Engine::end_pool(const std::string& name) {
  const Result<TrainingJob> ended = happen(name, WarmPoolEnded{});
  if (ended) return {};
  const Code code = ended.error().code;
  if (code != Code::kFailedPrecondition && code != Code::kNotFound) return ended.error();
  pools_.remove(name);
  if (capacity_.remove(name)) admit_waiting();
  return {};
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

Result<std::optional<Engine::TakeOver>> Engine::take_over(const TrainingJob& job) {
  const std::optional<std::string> of = pools_.match(job);
  if (!of) return std::optional<TakeOver>{};
  TakeOver taken;
  TrainingJob left = TRY(store_.load(*of));
  taken.left_version = left.version;
  const std::string pool = left.warm.name;
  taken.left = TRY(advance(std::move(left), WarmPoolTaken{job.name}, clock_.now()));
  taken.step = TRY(advance(job, CapacityGranted{pool, *of}, clock_.now()));
  return std::optional{std::move(taken)};
}

// The pool's share goes over as it is: to pool_terms() both are the same.
void Engine::pool_taken(const TakeOver& taken) {
  const std::string& of = taken.left.job.name;
  pools_.remove(of);
  capacity_.remove(of);
  const TrainingJob& job = taken.step.job;
  capacity_.hold(claim_of(job), job.attempts.admitted.value_or(job.created));
  set_deadlines(job);
  queue_effects(job.name, taken.step.effects);
}

// The first of the line gets a pool that fits before room is made for it.
Result<bool> Engine::admit_to_pool(const Claim& claim) {
  const TrainingJob job = TRY(store_.load(claim.name));
  const std::optional<TakeOver> taken = TRY(take_over(job));
  if (!taken) return false;
  TRY(store_.save(taken->step.job, job.version,
                  Store::Change{taken->left.job, taken->left_version}));
  pool_taken(*taken);
  notify();
  return true;
}

// Moves the first of the line onto the host; false when it has to wait on.
Result<bool> Engine::admit_first() {
  if (const Claim* first = capacity_.first_waiting(); first != nullptr && !pools_.empty()) {
    if (TRY(admit_to_pool(Claim{*first}))) return true;
  }
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

// Jobs that wait take their room from pools that nobody uses, and on-demand jobs then from spot
// jobs. With the end of a pool its room goes to who waits, and what is still missing is looked at
// again (settle()).
void Engine::make_room() {
  if (const std::optional<std::string> pool = capacity_.pool_to_end()) {
    const Result<void> ended = end_pool(*pool);
    if (!ended) log::warning("making room: " + ended.error().message);
    return;  // what failed is tried again with the next look at all jobs
  }
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
  // A job of this name that was deleted may not have left its folder yet.
  if (TRY(store_.is_removed(job.name))) TRY(set_aside(job.name));
  // Who waits before it may need the room of the pool, sooner or later.
  const bool is_first = capacity_.ahead_of(claim_of(job)) == 0;
  const auto taken = is_first ? TRY(take_over(job)) : std::optional<TakeOver>{};
  if (taken) {
    TakeOver with_id = *taken;
    with_id.step.job.id =
        TRY(store_.insert(taken->step.job, Store::Change{taken->left.job, taken->left_version}));
    pool_taken(with_id);
    notify();
    return {};
  }
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

Result<void> Engine::stop(const std::string& name, const std::string& call) {
  const std::scoped_lock lock(mutex_);
  TRY(happen(name, StopRequested{call}));
  return {};
}

Result<void> Engine::change_request(const std::string& name, const RequestChange& change) {
  const std::scoped_lock lock(mutex_);
  const TrainingJob job = TRY(store_.load(name));
  std::string request = job.request_json;
  const bool of_the_job = TRY(change(job, request));
  Step step{job, {}};
  const Result<json::value> parsed = parse_json(request);
  const auto keep_alive = parsed ? keep_alive_of(*parsed) : job.warm.keep_alive;
  if (keep_alive != job.warm.keep_alive) {
    step = TRY(advance(job, KeepAliveChanged{keep_alive}, clock_.now()));
  }
  TRY(store_.replace_request(name, job.version, request,
                             of_the_job ? std::optional{clock_.now()} : std::nullopt,
                             step.job.warm));
  notify();
  queue_effects(name, step.effects);
  if (job.terminal()) settle_pool(step.job);
  return {};
}

Result<void> Engine::remove(const std::string& name) {
  fs::path aside, pool_aside;
  TrainingJob job;
  {
    const std::scoped_lock lock(mutex_);
    job = TRY(store_.load(name));
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
    const fs::path removed = TRY(make_removed_folder(options_));  // as long as nothing has changed
    if (job.warm.status == kWarmAvailable) job = TRY(happen(name, WarmPoolEnded{}));
    // Before the record goes: a pool that no record names is kept (remove_left_pools()).
    if (job.warm.status == kWarmTerminated && !job.warm.name.empty()) {
      pool_aside = removed / job.warm.name;
      std::error_code gone_already;
      fs::rename(pool_folder(job.warm.name), pool_aside, gone_already);
    }
    TRY(store_.remove(name, job.version));
    aside = TRY(set_aside(name));
    notify();
  }
  ignore_error(remove_tree(aside), "what is left goes with the next start");
  if (!pool_aside.empty()) ignore_error(remove_tree(pool_aside), "the same");
  ignore_error(remove_pool_folder(job), "on a disk of its own it could not be moved aside");
  return {};
}

// Of a pool that is over; of any other job nothing.
Result<void> Engine::remove_pool_folder(const TrainingJob& job) {
  if (job.warm.status != kWarmTerminated || job.warm.name.empty()) return {};
  TRY(check_own_folder(options_.warm_folder()));
  return remove_tree(pool_folder(job.warm.name));
}

Result<fs::path> Engine::set_aside(const std::string& name) {
  fs::path aside = TRY(make_removed_folder(options_)) / fmt::format("{}.{}", name, random_id());
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
  ignore_error(remove_names_with_id(options_.removed_folder()),
               "it is tried again with each start");
  rmdir(options_.removed_folder().c_str());  // where nothing else is in it
}

Result<void> Engine::adopt() {
  finish_removals();
  const std::vector<TrainingJob> jobs = TRY(store_.load_active());
  {
    const std::scoped_lock lock(mutex_);
    for (const TrainingJob& job : jobs) take_place(job);
    for (const TrainingJob& job : TRY(store_.load_warm())) keep_pool(job);
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
