// The last phase of a training: gradient steps through the trunk, with averaged weights, validation
// after every pass and the best state kept.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "vision/backbone.h"
#include "vision/classify.h"
#include "vision/hyperparameters.h"
#include "vision/image_folder.h"
#include "vision/schedule.h"

namespace atelier::vision {

// Where lines for people and metric regexes go.
using Print = std::function<void(const std::string& line)>;

struct FineTunePlan {
  Hyperparameters h;
  std::size_t frozen_units = 0;
  Engine engine = Engine::kFused;
  Preprocess preprocess;
  bool flip_average = false;
  at::Tensor class_weights;  // undefined: all the same
  const Budget* budget = nullptr;
  double reserve_seconds = 0;  // kept back from the budget for what comes after
  std::function<bool()> stopped;
  Print print;
};

// Samples by number in their folder.
struct Split {
  const ImageFolder* train_folder = nullptr;
  std::vector<std::uint32_t> train;
  const ImageFolder* validation_folder = nullptr;
  std::vector<std::uint32_t> validation;
};

struct EpochRecord {
  std::int64_t epoch = 0;
  double seconds = 0;
  double train_loss = 0, train_accuracy = 0;
  double validation_accuracy = 0, validation_top_k = 0, validation_loss = 0;
};

struct FineTuneResult {
  std::vector<EpochRecord> epochs;
  std::int64_t best_epoch = 0;
  EvaluationRun best;  // validation at that epoch
  std::uint64_t pictures = 0;
  double images_per_second = 0;
  double images_per_processor_second = 0;
  bool stopped = false;  // by SIGTERM
  bool out_of_time = false;
  std::map<std::string, std::string> damaged;  // path: reason
};

// Leaves the best state (of the averaged weights) in the network.
Result<FineTuneResult> fine_tune(Network& network, const Split& split, const FineTunePlan& plan);

// Lines for the metrics of one evaluation, in the spellings that metric definitions in the wild
// expect.
std::vector<std::string> validation_lines(std::int64_t epoch, const Evaluation& evaluation);

}  // namespace atelier::vision
