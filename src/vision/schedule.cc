#include "vision/schedule.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "vision/job_folders.h"

namespace atelier::vision {

double cosine_share(double progress, double warm_up) {
  constexpr double kFirst = 0.05;
  constexpr double kLast = 1e-3;
  const double p = std::clamp(progress, 0.0, 1.0);
  if (p < warm_up) return kFirst + (1 - kFirst) * p / warm_up;
  const double angle = 3.141592653589793 * (p - warm_up) / (1 - warm_up);
  return kLast + (1 - kLast) * 0.5 * (1 + std::cos(angle));
}

double step_share(std::int64_t epoch, const std::vector<std::int64_t>& steps, double factor) {
  double share = 1;
  for (const std::int64_t step : steps) {
    if (epoch >= step) share *= factor;
  }
  return share;
}

Budget::Budget(std::optional<double> seconds, int threads)
    : seconds_(seconds),
      threads_(std::max(1, threads)),
      by_processor_(environment("ATELIER_BUDGET_CLOCK") == "processor"),
      start_(std::chrono::steady_clock::now()) {}

double Budget::elapsed() const {
  if (by_processor_) return earlier_ + process_seconds() / threads_;
  return earlier_ +
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

double Budget::spent(double since, double reserve) const {
  if (!seconds_) return 0;
  const double all = std::max(1e-3, *seconds_ - reserve - since);
  return std::clamp((elapsed() - since) / all, 0.0, 1.0);
}

double process_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace atelier::vision
