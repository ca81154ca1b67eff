// From a batch of pictures to probabilities: the one way in which validation, tests and predictions
// go.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "vision/backbone.h"
#include "vision/evaluation.h"
#include "vision/image_folder.h"

namespace atelier::vision {

// The batch's pixels as [count, channels, height, width], channels-last, without a copy: the batch
// must outlive the tensor.
at::Tensor batch_tensor(const Batch& batch, const Preprocess& spec);

// Mean softmax over the views: the picture, and its mirror image when `flip_average`.
at::Tensor class_probabilities(const Network& network, const at::Tensor& pictures, Engine engine,
                               bool flip_average);

// A picture that was taken for another class, for the contact sheet.
struct Mistake {
  std::uint32_t index = 0;  // of the sample
  std::uint32_t truth = 0;
  std::uint32_t guess = 0;
  float probability = 0;  // of the guess
};

struct EvaluationRun {
  Evaluation evaluation;
  std::vector<Mistake> mistakes;  // the most confident ones, first
  std::vector<DamagedPicture> damaged;
};

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
