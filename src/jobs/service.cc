#include "jobs/service.h"

#include <fmt/format.h>

#include "base/id.h"
#include "jobs/engine.h"
#include "jobs/job_access.h"
#include "jobs/leavings.h"
#include "jobs/log_streams.h"
#include "jobs/logs.h"
#include "jobs/request.h"

namespace atelier::jobs {
namespace {

class LocalService final : public Service {
 public:
  static Result<std::unique_ptr<Service>> open(ServiceOptions options, const Clock& clock) {
    TRY(check_folders(options));
    TRY(make_folders(options.folder, 0700));
    auto service = std::unique_ptr<LocalService>{new LocalService{options, clock}};
    service->store_ = TRY(Store::open(options.folder / "jobs.db"));
    service->engine_ = TRY(Engine::create(std::move(options), clock, *service->store_));
    TRY(service->engine_->adopt());
    return std::unique_ptr<Service>{std::move(service)};
  }

  void run() override { engine_->run(); }

  Result<std::string> create(const NewJob& wanted) override {
    const Time now = clock_.now();
    Plan plan = TRY(plan_job(wanted.request_json,
                             PlanContext{options_.region, options_.account, options_.instances,
                                         options_.runtimes, options_.host},
                             now));
    TrainingJob job = new_training_job(plan.spec.job_name, now);
    job.arn = plan.spec.job_arn;
    job.request_json = wanted.request_json;
    job.invocation_id = wanted.invocation_id;
    job.created_by = wanted.created_by;
    job.warnings = std::move(plan.warnings);
    job.model_uri = std::move(plan.model_uri);
    job.vcpus = plan.allocation.vcpus;
    job.memory_gib = plan.allocation.memory_gib;
    job.gpus = plan.allocation.gpus;
    job.log_stream = plan.spec.log_stream;
    job.terms = std::move(plan.terms);
    if (plan.keep_alive.count() > 0) {
      job.warm.status = kWarmInUse;
      job.warm.name = fmt::format("{}.{}", job.name, random_id());
      job.warm.keep_alive = plan.keep_alive;
      const std::vector<std::string> ids = options_.user_ids
                                               ? options_.user_ids(root_of(job.created_by))
                                               : std::vector<std::string>{};
      if (!ids.empty()) job.warm.owner = ids.front();
    }

    std::error_code failure;
    // A folder of a job that was deleted makes room (Engine::submit()).
    if (std::filesystem::exists(engine_->folder_of(job.name), failure) &&
        !TRY(store_->is_removed(job.name))) {
      return taken(job);
    }
    const std::string arn = job.arn;
    const Result<void> submitted = engine_->submit(job);
    if (submitted) return arn;
    if (submitted.error().code == Code::kAlreadyExists) return taken(job);
    return submitted.error();
  }

  Result<TrainingJob> describe(const std::string& name) override { return store_->load(name); }
  Result<RecordVersion> version(const std::string& name) override { return store_->version(name); }
  Result<Page<JobSummary>> list(const ListQuery& query) override { return store_->list(query); }
  Result<Page<TrainingJob>> find(const ListQuery& query, const JobFilter& filter) override {
    return store_->find(query, filter);
  }
  Result<void> stop(const std::string& name, const std::string& call) override {
    return engine_->stop(name, call);
  }
  Result<void> interrupt(const std::string& name, const std::string& why) override {
    return engine_->interrupt(name, why);
  }
  Result<void> change_request(const std::string& name, const RequestChange& change) override {
    return engine_->change_request(name, change);
  }
  Result<void> remove(const std::string& name) override { return engine_->remove(name); }

  Result<LogStreamPage> log_streams(const LogStreamQuery& query) override {
    return find_log_streams(
        *store_, [this](const std::string& job) { return engine_->folder_of(job); }, query);
  }

  Result<LogQueryPage> log_events(const LogQuery& query) override {
    const std::string name = query.stream.substr(0, query.stream.find('/'));
    const Result<TrainingJob> job = store_->load(name);
    if (!job && job.error().code != Code::kNotFound) return job.error();
    const std::filesystem::path folder = engine_->folder_of(name);
    for (const std::string& host :
         job ? agent::instance_hosts(folder) : std::vector<std::string>{}) {
      if (log_stream_of(*job, host) == query.stream) {
        return read_log_page(log_path(folder, host), query);
      }
    }
    return Error{Code::kNotFound,
                 fmt::format("The specified log stream does not exist: '{}'", query.stream)};
  }

  Result<std::vector<FinalMetric>> metrics(const TrainingJob& job) override {
    std::vector<FinalMetric> found = job.final_metrics;
    if (!job.terminal()) complete_metrics(engine_->folder_of(job.name), found);
    return found;
  }

  Result<void> read_metric(const std::string& job, const std::string& name, Time from, Time to,
                           const std::function<bool(const MetricSample&)>& take) override {
    TRY(store_->load(job));
    return jobs::read_metric(engine_->folder_of(job), name, from, to, take);
  }

  [[nodiscard]] const std::vector<compute::PriceList>& price_lists() const override {
    return options_.price_lists;
  }

  std::uint64_t wait_for_change(std::uint64_t seen, std::chrono::milliseconds limit) override {
    return engine_->wait_for_change(seen, limit);
  }

 private:
  LocalService(ServiceOptions options, const Clock& clock)
      : options_(std::move(options)), clock_(clock) {}

  // The answer to a create of a name that is in use: a retry of the same call gets what the first
  // one got.
  Result<std::string> taken(const TrainingJob& wanted) {
    const Result<TrainingJob> there = store_->load(wanted.name);
    if (!there && there.error().code == Code::kNotFound) {
      return Error{
          Code::kAlreadyExists,
          fmt::format("'{}' is left from a job that the store does not know: remove it, or "
                      "use another name",
                      engine_->folder_of(wanted.name).string())};
    }
    if (!there) return there.error();
    if (!wanted.invocation_id.empty() && there->invocation_id == wanted.invocation_id &&
        there->created_by == wanted.created_by &&
        TRY(store_->created_as(wanted.name)) == wanted.request_json) {
      return there->arn;
    }
    return Error{Code::kAlreadyExists,
                 fmt::format("Training job names must be unique within an account and region, and "
                             "a training job with this name already exists ({})",
                             there->arn)};
  }

  const ServiceOptions options_;
  const Clock& clock_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

Result<std::unique_ptr<Service>> Service::open(ServiceOptions options, const Clock& clock) {
  return LocalService::open(std::move(options), clock);
}

}  // namespace atelier::jobs
