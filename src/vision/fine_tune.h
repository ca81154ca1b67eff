// The last phase of a training: gradient steps through the trunk, with averaged weights, validation
// after every pass and the best state kept.
//
// What a step does depends on the state and the seed alone, and the state can be saved after any
// step: a run that goes on from there ends with the same weights, bit for bit, as long as engine,
// threads, processor and libtorch stay the same and no time budget makes the clock a part of it.
#pragma once

#include <boost/json/fwd.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "vision/backbone.h"
#include "vision/checkpoint.h"
#include "vision/fine_tune_result.h"
#include "vision/hyperparameters.h"
#include "vision/schedule.h"
#include "vision/training_data.h"

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
  const Checkpoint* resume = nullptr;  // where to go on; null: at the beginning
  // Asked after every step and epoch; absent: no checkpoints.
  std::function<bool(bool end_of_epoch)> checkpoint_due;
  std::function<void(StateWriter&)> save_checkpoint;  // the writer holds the state already
};

// Leaves the best state (of the averaged weights) in the network. When it is stopped it saves a
// checkpoint, validates nothing any more, and leaves the best state so far, or without one the
// averaged weights.
Result<FineTuneResult> fine_tune(Network& network, const Split& split, const FineTunePlan& plan);

// For the model card.
boost::json::array epochs_to_json(const std::vector<EpochRecord>& epochs, bool multi_label);

// Lines for the metrics of one evaluation, in the spellings that metric definitions in the wild
// expect.
std::vector<std::string> validation_lines(std::int64_t epoch, const Evaluation& evaluation);

}  // namespace atelier::vision
