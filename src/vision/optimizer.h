// Optimisers over flat arrays, free of libtorch: one pass over memory for each parameter.
//
//   Optimizer optimizer({.kind = OptimizerKind::kAdamW, .weight_decay = 0.05}, sizes);
//   optimizer.begin_step();
//   optimizer.update(i, values, gradients, learning_rate, decays);    // for each parameter i
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::vision {

// sgd, nag, adam and rmsprop are SageMaker's; adamw decays weights apart from the gradient.
enum class OptimizerKind { kSgd, kNag, kAdam, kAdamW, kRmsprop };
std::string_view optimizer_name(OptimizerKind kind);
Result<OptimizerKind> parse_optimizer(std::string_view name);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double momentum = 0.9;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-8;
  double gamma = 0.9;  // rmsprop's decay of the squared gradient
  double weight_decay = 0.0;
};

// State of all parameters. Used by one thread; different parameters may be updated at once.
class Optimizer {
 public:
  Optimizer(const OptimizerOptions& options, std::span<const std::size_t> sizes);
  // Advances the step count, on which Adam's bias correction depends.
  void begin_step() { ++step_; }
  // `decays`: whether weight decay applies (not to biases and normalisations).
  void update(std::size_t parameter, std::span<float> values, std::span<const float> gradients,
              double learning_rate, bool decays);
  // All that a checkpoint needs of it, for a writer as well as for a reader.
  template <typename Archive>
  void transfer(Archive& archive) {
    archive("optimizer.step", step_);
    for (std::size_t i = 0; i < first_.size(); ++i) {
      archive(std::to_string(i) + ".first", std::span(first_[i]));
      archive(std::to_string(i) + ".second", std::span(second_[i]));
    }
  }

 private:
  OptimizerOptions options_;
  std::int64_t step_ = 0;
  std::vector<std::vector<float>> first_, second_;
};

// average = decay * average + (1 - decay) * values.
void average_into(std::span<float> average, std::span<const float> values, float decay);

}  // namespace atelier::vision
