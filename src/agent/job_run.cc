#include "agent/job_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "agent/archive.h"
#include "agent/attempt_clock.h"
#include "agent/checkpoints.h"
#include "agent/clean_up.h"
#include "agent/delivery.h"
#include "agent/gpus.h"
#include "agent/infra_check.h"
#include "agent/instances.h"
#include "agent/job_inputs.h"
#include "agent/job_log.h"
#include "agent/job_network.h"
#include "agent/journal.h"
#include "agent/members.h"
#include "agent/ml_tree.h"
#include "agent/network_slot.h"
#include "agent/outcome.h"
#include "agent/program.h"
#include "agent/script_mode.h"
#include "agent/supervisor.h"
#include "agent/volume_watch.h"
#include "agent/warm_folder.h"

namespace atelier::agent {
namespace fs = std::filesystem;
namespace {

// Who waits for the room of an interrupted job does not wait longer for its last checkpoint, should
// S3 be away.
constexpr std::chrono::minutes kInterruptedCopies{10};

constexpr const char* kNetworkEnded =
    "pasta, the way from the job's network to this machine's, was killed while the program ran";

class JobRun {
 public:
  JobRun(fs::path folder, AgentSpec spec, Journal& journal, const StoreFactory& make_store,
         const Clock& clock, MlTree tree, StopRequest stop, std::unique_ptr<JobLog> log,
         std::unique_ptr<Members> members)
      : folder_(std::move(folder)),
        job_(std::move(spec)),
        spec_(own_part(job_)),
        journal_(journal),
        make_store_(make_store),
        clock_(clock),
        tree_(std::move(tree)),
        stop_(std::move(stop)),
        log_(std::move(log)),
        members_(std::move(members)) {
    // Beside the preparations: it takes as long as they do (http/internal/curl_library.h), and a
    // program without channels can begin before it is done.
    making_store_ = std::async(std::launch::async, make_store, spec_.s3,
                               [this] { return delivering_ ? stop_.made_again() : stop_.any(); });
  }

  Result<void> go() {
    for (const char* kind : {"uploading", "saving"}) {
      const JournalEvent* event = journal_.find(kind);
      if (event == nullptr) continue;
      start_clock(AttemptClock::read(folder_, spec_.attempt));
      return finish(parse_outcome(event->detail_json));
    }
    if (journal_.find("training") != nullptr) {
      // It ended with its agent; what was between that and now is nobody's.
      attempt_time_ = AttemptClock::read(folder_, spec_.attempt);
      return finish(of_job(lost()));
    }
    // Everything up to the program can be done again: the first event that has to be on disk is
    // "training".
    TRY(journal_.append_soon("started", ""));
    Result<Outcome> outcome = prepare_and_run();
    if (outcome) return finish(of_job(*std::move(outcome)));
    const Error& error = outcome.error();
    if (error.code == Code::kCancelled) {
      Outcome ended;
      ended.kind = stop_.made() ? "stopped" : "interrupted";
      return finish(of_job(ended));
    }
    return finish(of_job(failed(error.message)));
  }

 private:
  void start_clock(std::optional<std::chrono::milliseconds> begin) {
    if (!begin) return;
    Result<std::unique_ptr<AttemptClock>> started =
        AttemptClock::start(folder_, spec_.attempt, *begin);
    if (started) {
      attempt_clock_ = *std::move(started);
    } else {
      log_->note("[atelier] the attempt's time is told by the wall clock: " +
                 started.error().message);
    }
  }

  Result<Outcome> prepare_and_run() {
    network_.begin(job_);
    Result<void> prepared = prepare();
    if (!prepared) return prepared.error().within("InternalServerError: preparing /opt/ml");
    Result<Gpus> gpus = Gpus::take(spec_, stop_, *log_);
    if (!gpus && gpus.error().code == Code::kCancelled) return gpus.error();
    if (!gpus) return gpus.error().within("InternalServerError: taking the job's GPUs");
    gpus_ = *std::move(gpus);
    spec_.gpu_numbers = gpus_.numbers();
    TRY(check_host());
    TRY(stopped_yet());
    // Their agents went on when the leader's was killed; they can not be joined again.
    if (members_->begun()) return lost();
    const Result<void> met = meet();
    if (!met) return met.error().within("InternalServerError: starting the job's instances");
    TRY(journal_.append_soon("downloading", ""));
    start_clock(std::chrono::milliseconds{0});
    bool cache_grew = false;
    for (const ChannelSpec& channel : spec_.channels) {
      cache_grew |= TRY(inputs().fill(channel));
      TRY(stopped_yet());
    }
    TRY(tree_.give_folders("input/data"));
    TRY(give_code());
    if (cache_grew) {
      syncing_cache_ = std::async(std::launch::async, [inputs = inputs()] {
        ignore_error(inputs.sync_cache(), "what is not known to be on the disk is fetched again");
      });
    }
    TRY(restore_checkpoints());
    limits_ = RunLimits{std::chrono::steady_clock::now() + spec_.max_runtime,
                        spec_.stop_grace,
                        spec_.interruption_notice,
                        [this](const auto& died_before) {
                          if (checkpoints_) checkpoints_->look(died_before);
                        },
                        network_.end_fd(),
                        [this] { log_->note(fmt::format("[atelier] {}", kNetworkEnded)); }};
    const bool script =
        spec_.runtime.kind == compute::RuntimeKind::kScript && spec_.container_entrypoint.empty();
    return script ? run_script() : run_program_of_image();
  }

  Result<void> prepare() {
    // What an agent that was killed while it downloaded has left is half done.
    TRY(remove_checkpoints(folder_, true));
    if (!tree_is_fresh()) {
      TRY(remove_tree(folder_ / "ml"));
      tree_ = TRY(MlTree::open(folder_ / "ml", compute::program_identity(identity_name(spec_))));
    }
    TRY(prepare_ml_tree(tree_, spec_));
    const compute::Identity owner = compute::program_identity(identity_name(spec_));
    const fs::path tmp = folder_ / "tmp";
    TRY(make_folders(tmp));
    if (chown(tmp.c_str(), owner.uid, owner.gid) != 0) return error_from_errno("chown", errno);
    TRY(prepare_warm_folder(tree_, spec_));
    if (!spec_.runtime.note.empty()) TRY(journal_.append_soon("warning", spec_.runtime.note));
    for (const std::string& words : log_->metric_warnings()) {
      TRY(journal_.append_soon("warning", words));
    }
    return {};
  }

  Result<void> restore_checkpoints() {
    checkpoints_ = TRY(Checkpoints::open(spec_, folder_, tree_, make_store_, stop_, *log_));
    if (!checkpoints_) return {};
    const Result<void> restored = checkpoints_->restore();
    if (!restored && restored.error().code == Code::kCancelled) return restored.error();
    if (!restored) return restored.error().within("ClientError");
    return checkpoints_->begin();
  }

  Result<void> give_code() {
    for (const ChannelSpec& channel : spec_.channels) {
      if (!belongs_to_program(spec_, channel)) continue;
      TRY(tree_.give_all("input/data/" + channel.name));
    }
    return {};
  }

  Result<void> check_host() {
    if (!spec_.infra_check) return {};
    const Result<std::string> found =
        check_infrastructure(spec_, folder_, sandbox_spec(spec_, folder_));
    if (!found) return found.error().within("InternalServerError");
    log_->note("[atelier] infrastructure check: " + *found);
    return {};
  }

  // The network, and with it the other instances.
  Result<void> meet() {
    TRY(network_.meet(folder_.parent_path(), job_, stop_, *log_));
    if (!network_.warning().empty()) TRY(journal_.append_soon("warning", network_.warning()));
    spec_.network_slot = job_.network_slot;
    return leads(spec_) ? members_->start(job_) : Result<void>{};
  }

  // A job has ended when all of its instances have.
  Outcome of_job(Outcome own) {
    if (members_->empty()) return own;
    const Time at = ended_.value_or(clock_.now());
    if (own.kind != "completed") members_->end_all();
    std::vector<InstanceEnd> ends = members_->wait();
    ends.insert(ends.begin(), InstanceEnd{spec_.host, std::move(own), at});
    for (const InstanceEnd& end : ends) {
      log_->note(fmt::format("[atelier] {}: {}", end.host, end.outcome.kind));
    }
    return outcome_of_job(ends);
  }

  objects::ObjectStore& store() {
    if (store_ == nullptr) store_ = making_store_.get();
    return *store_;
  }

  JobInputs inputs() {
    return {spec_, folder_, tree_,
            *log_, stop_,   [this]() -> objects::ObjectStore& { return store(); }};
  }

  [[nodiscard]] bool tree_is_fresh() const {
    const Result<std::vector<TreeEntry>> entries = list_tree(tree_, "");
    return entries && entries->empty();
  }

  [[nodiscard]] Result<void> stopped_yet() const {
    if (stop_.any()) return Error{Code::kCancelled, "stopped before the program began"};
    return {};
  }

  Result<Outcome> run_program_of_image() {
    compute::SandboxSpec sandbox = sandbox_spec(spec_, folder_);
    sandbox.argv = program_argv(spec_);
    FailureCollector collector;
    return ended(run(std::move(sandbox), [&](std::string_view line) { collector.line(line); }),
                 collector);
  }

  Result<Outcome> run_script() {
    const Result<ScriptJob> job = read_script_job(script_input(spec_));
    if (!job) return job.error().within("ClientError");
    for (const std::string& words : job->warnings) TRY(journal_.append_soon("warning", words));
    const Result<void> fetched = inputs().fetch_source(job->source);
    if (!fetched && fetched.error().code == Code::kCancelled) return fetched.error();
    if (!fetched) return fetched.error().within("ClientError: source code of the job");
    const CodeFolder code = look_at_code(tree_.folder() / "code", job->entry_point);
    const Result<ScriptPlan> plan = plan_script(*job, code);
    if (!plan) return plan.error().within("ClientError");
    if (plan->make_executable) {
      const Result<void> made = tree_.make_executable("code/" + job->entry_point);
      if (!made) return made.error().within("ClientError: the entry point of the job");
    }
    for (const ScriptStep& step : plan->steps) {
      Outcome outcome = TRY(run_step(*job, step));
      if (outcome.kind != "completed" || &step == &plan->steps.back()) return outcome;
    }
    return Error{Code::kInternal, "InternalServerError: a script without a step"};
  }

  Result<Outcome> run_step(const ScriptJob& job, const ScriptStep& step) {
    compute::SandboxSpec sandbox = sandbox_spec(spec_, folder_);
    sandbox.argv = step.argv;
    sandbox.files.insert(step.files.begin(), step.files.end());
    for (const auto* variables : {&job.environment, &step.environment}) {
      for (const auto& [name, value] : *variables) sandbox.environment[name] = value;
    }
    sandbox.working_folder = "/opt/ml/code";
    if (!step.announcement.empty()) log_->note(step.announcement);
    FailureCollector collector;
    Result<ProgramEnd> end =
        run(std::move(sandbox), [&](std::string_view line) { collector.line(line); });
    if (end && end->asked == ProgramEnd::Asked::kNo &&
        (end->exit.code != 0 || end->exit.signal != 0)) {
      const StepExit exit{end->exit.code, end->exit.signal, end->exit.out_of_memory};
      ignore_error(tree_.write_file("output/failure", failure_text(job, step, exit, collector)),
                   "a failure file of the script's own stands");
      end->exit = {kScriptFailureExitCode, 0, end->exit.out_of_memory};
    }
    return ended(end, collector);
  }

  // The program itself; "training" is in the journal before it begins.
  Result<ProgramEnd> run(compute::SandboxSpec sandbox,
                         const std::function<void(std::string_view)>& on_line) {
    TRY(stopped_yet());
    sandbox.before_start = [this](const std::string& limits) -> Result<void> {
      if (journal_.find("training") != nullptr) return {};
      return journal_.append("training", "", fmt::format(R"({{"limits":"{}"}})", limits));
    };
    sandbox.network = network_.shared();
    const VolumeWatch volume{written_places(spec_, folder_), warm_folders(spec_),
                             static_cast<std::uint64_t>(spec_.volume_gib) << 30,
                             [this] { return end_early(folder_, spec_.attempt).has_value(); }};
    Result<ProgramEnd> end = run_program(std::move(sandbox), *limits_, stop_, *log_, on_line);
    ended_ = clock_.now();
    written_ = volume.over();
    return end;
  }

  Result<Outcome> ended(const Result<ProgramEnd>& end, const FailureCollector& collector) {
    if (end) {
      Outcome outcome = outcome_of(*end, tree_, spec_, {log_->last_lines(), collector.message()});
      outcome.final_metrics = log_->final_metrics();
      if (written_ > 0 && outcome.kind == "stopped") {
        outcome.kind = "failed";
        outcome.beyond_volume = true;
        outcome.message = "ClientError: " + beyond_volume_words(written_, spec_);
      }
      if (outcome.kind == "completed") {
        for (const std::string& words : log_->unmatched_metrics()) {
          TRY(journal_.append("warning", words));
        }
      }
      TRY(say_network_ended(outcome));
      return outcome;
    }
    if (end.error().code == Code::kCancelled) return end.error();
    return failed(
        fmt::format("InternalServerError: {}. {}", end.error().message, log_->last_lines()));
  }

  // What a program does without a network is not its own failure.
  Result<void> say_network_ended(Outcome& outcome) {
    if (!network_.ended()) return {};
    if (outcome.kind == "failed") {
      outcome.message =
          fmt::format("InternalServerError: {}; then: {}", kNetworkEnded, outcome.message);
      return {};
    }
    return journal_.append("warning", kNetworkEnded);
  }

  [[nodiscard]] Outcome lost() const {
    Outcome outcome = failed(
        "InternalServerError: the agent was killed while the program ran, and the program with it");
    outcome.ran = true;
    outcome.killed = true;
    return outcome;
  }

  // Uploads what there is and writes the last event.
  Result<void> finish(Outcome outcome) {
    // Who still watched the folders when they are cleaned up would take that for the program's
    // doing, and clean up in S3 as well.
    if (checkpoints_ && !outcome.ran) checkpoints_->abandon();
    log_->sync_to_the_end();
    if (outcome.ran && outcome.kind != "interrupted") {
      if (journal_.find("uploading") == nullptr) {
        TRY(journal_.append("uploading", "", to_json(outcome)));
      }
      const Result<void> upload = deliver(outcome);
      if (!upload) TRY(not_delivered(outcome, upload.error()));
    }
    if (outcome.ran && outcome.kind == "interrupted") {
      if (journal_.find("saving") == nullptr) {
        TRY(journal_.append("saving", "", to_json(outcome)));
      }
      const Result<void> saved =
          finish_checkpoints(outcome, std::chrono::steady_clock::now() + kInterruptedCopies);
      if (!saved) TRY(journal_.append("warning", saved.error().message));
    }
    const std::string problem = log_->problem();
    if (!problem.empty()) {
      TRY(journal_.append("warning", problem));
    }
    const std::string kind = outcome.kind;
    if (attempt_clock_) attempt_time_ = attempt_clock_->elapsed();
    outcome.attempt_time = attempt_time_;
    TRY(journal_.append(kind, outcome.message, to_json(outcome)));
    if (!leads(spec_)) return {};  // what it leaves is delivered, and removed, by the leader
    const Result<void> cleaned = clean_up(folder_, outcome);
    if (!cleaned) log_->note("[atelier] left behind: " + cleaned.error().message);
    return {};
  }

  Result<void> not_delivered(Outcome& outcome, const Error& error) {
    outcome.delivered = false;
    const bool given_up = error.code == Code::kCancelled;  // by a second stop
    const std::string words =
        given_up ? fmt::format(
                       "stopped again before its results were in S3; what is not there is "
                       "kept on the host, in jobs/{} of the server's data folder ({})",
                       spec_.job_name, error.message)
                 : "ClientError: " + error.message;
    if (outcome.kind == "failed") return journal_.append("warning", words);
    outcome.kind = given_up ? "stopped" : "failed";
    outcome.message = words;
    return {};
  }

  // Who was told to end has had its time; another one has what is left of it.
  [[nodiscard]] std::chrono::seconds packing_time(const Outcome& outcome) const {
    const bool told = outcome.kind == "stopped" || outcome.kind == "max-runtime" || stop_.any();
    if (told) return spec_.packing_time;
    const auto left =
        limits_ ? limits_->deadline - std::chrono::steady_clock::now() : spec_.max_runtime;
    return spec_.packing_time +
           std::max(std::chrono::ceil<std::chrono::seconds>(left), std::chrono::seconds{0});
  }

  Result<void> deliver(const Outcome& outcome) {
    delivering_ = true;  // a stop lets an upload finish, a second one does not
    // First: it is what a next attempt needs.
    const Result<void> checkpoints = finish_checkpoints(outcome);
    if (!leads(spec_)) return checkpoints;
    const DeliveryOutcome results = deliver_results(
        store(), spec_, folder_, tree_, stop_, packing_time(outcome), outcome.kind != "failed");
    std::optional<Error> failure;
    for (const Result<void>* part : {&results.model, &checkpoints, &results.output}) {
      if (*part) continue;
      if (failure) {
        failure->message += "; " + part->error().message;
      } else {
        failure = part->error();
      }
    }
    TRY(warn_of_left_out(results.left_out));
    if (failure) return *failure;
    return {};
  }

  Result<void> warn_of_left_out(const std::vector<std::string>& names) {
    if (names.empty()) return {};
    return journal_.append(
        "warning", fmt::format("{} files have the name of a file of another instance and are not "
                               "uploaded, '{}' among them: of those the first instance's counts",
                               names.size(), names.front()));
  }

  Result<void> finish_checkpoints(
      const Outcome& outcome,
      std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt) {
    if (!checkpoints_) {
      checkpoints_ = TRY(Checkpoints::open(spec_, folder_, tree_, make_store_, stop_, *log_));
    }
    if (!checkpoints_) return {};
    const ProgramState state = outcome.killed           ? ProgramState::kCrashed
                               : outcome.exit_code != 0 ? ProgramState::kFailed
                                                        : ProgramState::kEnded;
    TRY(checkpoints_->finish(state, deadline));
    for (const std::string& words : checkpoints_->warnings()) {
      TRY(journal_.append("warning", words));
    }
    return {};
  }

  fs::path folder_;
  AgentSpec job_;   // as the leader was told
  AgentSpec spec_;  // of this instance
  Journal& journal_;
  const StoreFactory& make_store_;
  std::atomic<bool> delivering_ = false;
  const Clock& clock_;
  MlTree tree_;
  StopRequest stop_;
  std::unique_ptr<JobLog> log_;
  std::unique_ptr<Members> members_;
  Gpus gpus_;
  JobNetwork network_;
  std::optional<Time> ended_;                    // the program
  std::uint64_t written_ = 0;                    // by the program, once that was more than it may
  std::optional<RunLimits> limits_;              // once the program may run
  std::unique_ptr<AttemptClock> attempt_clock_;  // from the download on
  std::optional<std::chrono::milliseconds> attempt_time_;
  std::unique_ptr<Checkpoints> checkpoints_;  // once restored; null without any
  std::future<void> syncing_cache_;
  // Last, so that its thread has ended before what it asks goes.
  std::unique_ptr<objects::ObjectStore> store_;
  std::future<std::unique_ptr<objects::ObjectStore>> making_store_;
};

Result<AgentSpec> read_spec(const fs::path& folder) {
  return parse_agent_spec(TRY(read_file(folder / "spec.json", std::size_t{64} << 20)));
}

Result<void> run_spec(const fs::path& folder, Journal& journal, const StoreFactory& make_store,
                      const Clock& clock) {
  AgentSpec spec = TRY(read_spec(folder));
  journal.enter(spec.attempt, spec.journal_floor);
  // Its agent was killed while it cleaned up.
  if (const JournalEvent* end = journal.end()) {
    return leads(spec) ? clean_up(folder, parse_outcome(end->detail_json)) : Result<void>{};
  }
  MlTree tree = TRY(MlTree::open(folder / "ml", compute::program_identity(identity_name(spec))));
  StopRequest stop = TRY(StopRequest::watch(folder, spec.attempt));
  std::unique_ptr<JobLog> log = TRY(JobLog::open(folder, spec.host, spec.metrics, clock));
  // Agents of the other instances are this program too, also where a newer one has its place.
  std::error_code failure;
  fs::path program = fs::read_symlink("/proc/self/exe", failure);
  if (failure || !fs::exists(program, failure)) program = "/proc/self/exe";
  std::unique_ptr<Members> members = TRY(Members::open(folder, spec, std::move(program), clock));
  return JobRun{folder,          std::move(spec), journal,        make_store,        clock,
                std::move(tree), std::move(stop), std::move(log), std::move(members)}
      .go();
}

}  // namespace

Result<void> run_job(const fs::path& job_folder, const StoreFactory& make_store,
                     const Clock& clock) {
  Journal journal = TRY(Journal::open(job_folder, clock));
  Result<void> outcome = run_spec(job_folder, journal, make_store, clock);
  if (outcome || journal.end() != nullptr) return outcome;
  // Something before the first step, or the journal itself: then this fails as well.
  return journal.append("failed", "InternalServerError: " + outcome.error().message);
}

}  // namespace atelier::agent
