// What a training job cost: a pure function of its record. Prices are those of the instance table
// on the day the job was made; money is in that table's currency.
#pragma once

#include "jobs/training_job.h"

namespace atelier::jobs {

struct Cost {
  JobTimes times;             // seconds of one instance
  std::int64_t retained = 0;  // seconds that its warm pool was held for nobody, likewise
  double cost = 0;            // billable and retained time of all instances, at the on-demand price
  double saved = 0;           // what the same training time would have cost on demand, besides
};
Cost cost_of(const TrainingJob& job, Time now);
// The job's training time on as many instances at another price per hour.
double cost_at(const TrainingJob& job, double price_per_hour, Time now);

}  // namespace atelier::jobs
