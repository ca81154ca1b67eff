// What a job's record says of time that is paid for.
#include <algorithm>
#include <cmath>

#include "jobs/training_job.h"

namespace atelier::jobs {

std::chrono::milliseconds held_for_nobody(const WarmPool& pool, Time now) {
  if (!pool.available) return std::chrono::milliseconds{0};
  // A clock that jumped, or a server that was away, costs nobody more than was asked for.
  return std::clamp<std::chrono::milliseconds>(now - *pool.available, std::chrono::milliseconds{0},
                                               pool.keep_alive);
}

JobTimes job_times(const TrainingJob& job, Time now) {
  if (!job.started) return {};
  std::chrono::milliseconds trained = job.attempts.trained;
  if (job.attempts.began) trained += std::max(now, *job.attempts.began) - *job.attempts.began;
  const Terms& terms = job.terms;
  const bool cheaper =
      terms.spot && terms.price_per_hour > 0 && terms.spot_price_per_hour < terms.price_per_hour;
  const double part = cheaper ? terms.spot_price_per_hour / terms.price_per_hour : 1;
  const auto seconds = [](std::chrono::duration<double> time) {
    // Never 0: the SDK divides by it.
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(time.count())));
  };
  return {seconds(trained), seconds(part * std::chrono::duration<double>(trained))};
}

std::int64_t warm_seconds(const WarmPool& pool, Time now) {
  const bool idle = pool.status == kWarmAvailable;
  return std::chrono::ceil<std::chrono::seconds>(idle ? held_for_nobody(pool, now) : pool.retained)
      .count();
}

std::chrono::seconds runtime_left(const TrainingJob& job) {
  const auto trained = std::chrono::floor<std::chrono::seconds>(job.attempts.trained);
  return std::max(job.terms.max_runtime - trained, std::chrono::seconds{1});
}

}  // namespace atelier::jobs
