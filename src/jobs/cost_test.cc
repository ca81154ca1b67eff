#include "jobs/cost.h"

#include <gtest/gtest.h>

namespace atelier::jobs {
namespace {

TrainingJob job_of(std::chrono::seconds trained) {
  TrainingJob job = new_training_job("a", Time{});
  job.started = Time{};
  job.attempts.trained = trained;
  job.terms.price_per_hour = 3.6;
  job.terms.spot_price_per_hour = 0.9;
  return job;
}

TEST(Cost, IsBillableTimeAtTheOnDemandPriceOfAllInstances) {
  TrainingJob job = job_of(std::chrono::seconds{1000});
  EXPECT_DOUBLE_EQ(cost_of(job, Time{}).cost, 1);
  EXPECT_DOUBLE_EQ(cost_of(job, Time{}).saved, 0);
  job.terms.instance_count = 3;
  EXPECT_DOUBLE_EQ(cost_of(job, Time{}).cost, 3);
  EXPECT_DOUBLE_EQ(cost_at(job, 7.2, Time{}), 6);
}

TEST(Cost, ASpotJobSaysWhatItSaved) {
  TrainingJob job = job_of(std::chrono::seconds{1000});
  job.terms.spot = true;
  const Cost cost = cost_of(job, Time{});
  EXPECT_EQ(cost.times.billable, 250);
  EXPECT_DOUBLE_EQ(cost.cost, 0.25);
  EXPECT_DOUBLE_EQ(cost.saved, 0.75);
}

TEST(Cost, APoolThatIsHeldForNobodyCostsWhatItsInstancesDo) {
  TrainingJob job = job_of(std::chrono::seconds{1000});
  job.terms.instance_count = 2;
  job.warm.status = kWarmAvailable;
  job.warm.keep_alive = std::chrono::seconds{600};
  job.warm.available = from_epoch_milliseconds(0);
  const Cost cost = cost_of(job, from_epoch_milliseconds(499'001));
  EXPECT_EQ(cost.retained, 500);
  EXPECT_DOUBLE_EQ(cost.cost, 3);
  EXPECT_DOUBLE_EQ(cost.saved, 0);
  EXPECT_EQ(cost_of(job, from_epoch_milliseconds(9'000'000)).retained, 600) << "no more than asked";
  job.warm.status = kWarmReused;
  job.warm.retained = std::chrono::seconds{250};
  EXPECT_DOUBLE_EQ(cost_of(job, from_epoch_milliseconds(9'000'000)).cost, 2.5);
}

TEST(Cost, AJobThatNeverStartedCostsNothing) {
  EXPECT_EQ(cost_of(new_training_job("a", Time{}), Time{}).cost, 0);
}

}  // namespace
}  // namespace atelier::jobs
