// How a training spends its time: the learning rate along the way, and the budget that it has.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace atelier::vision {

// The share of the top learning rate at `progress` (0..1): a linear warm-up, then half a cosine to
// almost nothing (Smith's one cycle, 2018, without the momentum).
double cosine_share(double progress, double warm_up);

// The share after the steps of SageMaker's lr_scheduler_step: factor for each epoch passed.
double step_share(std::int64_t epoch, const std::vector<std::int64_t>& steps, double factor);

// Time from the start of a job against what it may use. With ATELIER_BUDGET_CLOCK=processor, time
// is the processor seconds of the process divided by its threads: what an idle machine would have
// taken. That is for measurements on shared machines.
class Budget {
 public:
  Budget(std::optional<double> seconds, int threads);
  [[nodiscard]] double elapsed() const;
  // Counts the seconds that an interrupted run had spent before.
  void add_earlier(double seconds) { earlier_ += seconds; }
  [[nodiscard]] bool limited() const { return seconds_.has_value(); }
  // The share of the budget that is spent, of what remains after `reserve` seconds are kept back; 0
  // without a budget.
  [[nodiscard]] double spent(double since, double reserve) const;
  [[nodiscard]] std::optional<double> seconds() const { return seconds_; }

 private:
  std::optional<double> seconds_;
  int threads_;
  bool by_processor_;
  double earlier_ = 0;
  std::chrono::steady_clock::time_point start_;
};

// CPU seconds of this process so far.
double process_seconds();

}  // namespace atelier::vision
