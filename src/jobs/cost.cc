#include "jobs/cost.h"

namespace atelier::jobs {
namespace {

constexpr double kSecondsPerHour = 3600;

double price_of(const TrainingJob& job, std::int64_t seconds, double price_per_hour) {
  return static_cast<double>(seconds) * job.terms.instance_count * price_per_hour / kSecondsPerHour;
}

}  // namespace

Cost cost_of(const TrainingJob& job, Time now) {
  Cost cost;
  cost.times = job_times(job, now);
  cost.cost = price_of(job, cost.times.billable, job.terms.price_per_hour);
  cost.retained = warm_seconds(job.warm, now);
  cost.saved = price_of(job, cost.times.training, job.terms.price_per_hour) - cost.cost;
  cost.cost += price_of(job, cost.retained, job.terms.price_per_hour);
  return cost;
}

double cost_at(const TrainingJob& job, double price_per_hour, Time now) {
  return price_of(job, job_times(job, now).training, price_per_hour);
}

}  // namespace atelier::jobs
