// From a batch of pictures to probabilities: the one way in which validation, tests and predictions
// go.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "vision/backbone.h"
#include "vision/evaluation.h"
#include "vision/image_folder.h"

namespace atelier::vision {

// The batch's pixels as [count, channels, height, width], channels-last, without a copy: the batch
// must outlive the tensor.
at::Tensor batch_tensor(const Batch& batch, const Preprocess& spec);

// Mean probabilities over the views: the picture, and its mirror image when `flip_average`. Softmax
// over the classes, or with `multi_label` a sigmoid for each.
at::Tensor class_probabilities(const Network& network, const at::Tensor& pictures, Engine engine,
                               bool flip_average, bool multi_label);

// What samples show: class numbers [count], or with several labels a picture 0 and 1 for each class
// [count, classes] in fp32.
at::Tensor targets_of(const ImageFolder& folder, std::span<const std::uint32_t> samples);

// Mean cross-entropy of class numbers, or binary cross-entropy of zeros and ones, whichever the
// targets are. `weights` of the classes (of their ones) may be undefined.
at::Tensor training_loss(const at::Tensor& logits, const at::Tensor& targets,
                         const at::Tensor& weights, double label_smoothing);

// Classes seldom seen weigh more: n / (classes * count of the class); with several labels a
// picture, a class's yes against its no. `counts` are pictures of each class, `pictures` all of
// them.
at::Tensor loss_weights(std::span<const std::uint64_t> counts, std::size_t pictures,
                        bool multi_label);

// How many answers of a batch are right: pictures, or with several labels pictures times classes.
std::int64_t right_answers(const at::Tensor& logits, const at::Tensor& targets);

struct EvaluationOptions {
  Engine engine = Engine::kFused;
  bool flip_average = false;
  std::size_t k = 3;
  std::size_t batch_size = 128;
  unsigned threads = 1;
  bool fail_on_damage = false;
  std::size_t max_mistakes = 40;
  std::function<bool(std::size_t done, std::size_t all)> progress;  // false: stop
};

// Evaluates the samples `order` of the folder; kCancelled when `progress` says so.
Result<EvaluationRun> evaluate(const Network& network, const ImageFolder& folder,
                               std::vector<std::uint32_t> order, const Preprocess& spec,
                               const EvaluationOptions& options);

}  // namespace atelier::vision
