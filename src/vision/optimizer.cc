#include "vision/optimizer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "vision/clones.h"

namespace atelier::vision {
namespace {

struct Named {
  OptimizerKind kind;
  std::string_view name;
};
constexpr std::array<Named, 5> kNames{{{OptimizerKind::kSgd, "sgd"},
                                       {OptimizerKind::kNag, "nag"},
                                       {OptimizerKind::kAdam, "adam"},
                                       {OptimizerKind::kAdamW, "adamw"},
                                       {OptimizerKind::kRmsprop, "rmsprop"}}};

// Kingma and Ba, "Adam" (2015), algorithm 1; the decoupled decay of Loshchilov and Hutter (2019).
struct AdamStep {
  float beta_1, beta_2, step_size, root_correction, epsilon, l2, shrink;
};
ATELIER_CLONES void adam(std::size_t count, float* __restrict values,
                         const float* __restrict gradients, float* __restrict first,
                         float* __restrict second, const AdamStep& s) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradients[i] + s.l2 * values[i];
    first[i] = s.beta_1 * first[i] + (1 - s.beta_1) * g;
    second[i] = s.beta_2 * second[i] + (1 - s.beta_2) * g * g;
    const float denominator = std::sqrt(second[i]) * s.root_correction + s.epsilon;
    values[i] = s.shrink * values[i] - s.step_size * first[i] / denominator;
  }
}

ATELIER_CLONES void momentum_step(std::size_t count, float* __restrict values,
                                  const float* __restrict gradients, float* __restrict velocity,
                                  float rate, float momentum, float l2, bool nesterov) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradients[i] + l2 * values[i];
    velocity[i] = momentum * velocity[i] + g;
    values[i] -= rate * (nesterov ? g + momentum * velocity[i] : velocity[i]);
  }
}

ATELIER_CLONES void rmsprop(std::size_t count, float* __restrict values,
                            const float* __restrict gradients, float* __restrict second, float rate,
                            float gamma, float epsilon, float l2) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradients[i] + l2 * values[i];
    second[i] = gamma * second[i] + (1 - gamma) * g * g;
    values[i] -= rate * g / (std::sqrt(second[i]) + epsilon);
  }
}

ATELIER_CLONES void average(std::size_t count, float* __restrict into,
                            const float* __restrict values, float decay) {
  for (std::size_t i = 0; i < count; ++i) into[i] = decay * into[i] + (1 - decay) * values[i];
}

}  // namespace

std::string_view optimizer_name(OptimizerKind kind) {
  for (const Named& named : kNames) {
    if (named.kind == kind) return named.name;
  }
  return "unknown";
}

Result<OptimizerKind> parse_optimizer(std::string_view name) {
  for (const Named& named : kNames) {
    if (named.name == name) return named.kind;
  }
  return Error{Code::kInvalidArgument,
               fmt::format("optimizer '{}' is none of sgd, nag, adam, adamw, rmsprop", name)};
}

Optimizer::Optimizer(const OptimizerOptions& options, std::span<const std::size_t> sizes)
    : options_(options) {
  const bool adam_like =
      options.kind == OptimizerKind::kAdam || options.kind == OptimizerKind::kAdamW;
  for (const std::size_t size : sizes) {
    first_.emplace_back(size, 0.0F);
    second_.emplace_back(adam_like ? size : 0, 0.0F);
  }
}

void Optimizer::update(std::size_t parameter, std::span<float> values,
                       std::span<const float> gradients, double learning_rate, bool decays) {
  ATELIER_CHECK(values.size() == gradients.size() && values.size() == first_[parameter].size(),
                "a parameter changed its size");
  const double decay = decays ? options_.weight_decay : 0.0;
  float* first = first_[parameter].data();
  const auto rate = static_cast<float>(learning_rate);
  const auto l2 = static_cast<float>(decay);
  switch (options_.kind) {
    case OptimizerKind::kSgd:
    case OptimizerKind::kNag:
      momentum_step(values.size(), values.data(), gradients.data(), first, rate,
                    static_cast<float>(options_.momentum), l2,
                    options_.kind == OptimizerKind::kNag);
      return;
    case OptimizerKind::kRmsprop:
      rmsprop(values.size(), values.data(), gradients.data(), first, rate,
              static_cast<float>(options_.gamma), static_cast<float>(options_.epsilon), l2);
      return;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      break;
  }
  const bool decoupled = options_.kind == OptimizerKind::kAdamW;
  const auto step = static_cast<double>(step_);
  const AdamStep plan{
      .beta_1 = static_cast<float>(options_.beta_1),
      .beta_2 = static_cast<float>(options_.beta_2),
      .step_size = static_cast<float>(learning_rate / (1 - std::pow(options_.beta_1, step))),
      .root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta_2, step))),
      .epsilon = static_cast<float>(options_.epsilon),
      .l2 = decoupled ? 0.0F : l2,
      .shrink = decoupled ? static_cast<float>(1 - learning_rate * decay) : 1.0F};
  adam(values.size(), values.data(), gradients.data(), first, second_[parameter].data(), plan);
}

void average_into(std::span<float> into, std::span<const float> values, float decay) {
  ATELIER_CHECK(into.size() == values.size(), "an average changed its size");
  average(into.size(), into.data(), values.data(), decay);
}

}  // namespace atelier::vision
