// The checkpoints of one training job: which run they belong to, what of the host they rest on, and
// when the next one is due.
//
// A run is known by everything that decides about its weights: hyperparameters, data, first
// weights. Its files carry a digest of that in their names:
//   run-3f9c....json            what it is, and the engine and threads that it was begun with
//   features-3f9c...-000001...  parts of the features of a frozen trunk
//   state-3f9c...-000012...     states of the fine-tuning
// so that a folder may be used again with other settings: files of other runs are left alone.
#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "vision/checkpoint.h"
#include "vision/schedule.h"

namespace atelier::vision {

class RunCheckpoints {
 public:
  struct Options {
    std::filesystem::path folder;
    boost::json::object identity;    // all that decides about the weights
    std::optional<double> interval;  // seconds; absent: by what they cost
    Budget* budget = nullptr;        // the clock; what the run had spent before is added to it
    std::function<void(const std::string& line)> print;
  };
  static Result<RunCheckpoints> open(Options options);

  // What the run was begun with: {"engine", "threads", "processor", "torch"}; null at the first
  // start.
  [[nodiscard]] const boost::json::object* host() const;
  // Keeps that, durably.
  Result<void> begin(boost::json::object host);

  // The newest whole state of the fine-tuning. Damaged ones are named in a line.
  std::optional<Checkpoint> newest_state();
  CheckpointFolder& features() { return features_; }
  [[nodiscard]] bool due(bool end_of_epoch) const {
    return pace_.due(options_.budget->elapsed(), end_of_epoch);
  }
  // Adds the clock to the state and saves it. A failure is told in a line and costs nothing but the
  // checkpoint: the one before is still there.
  void save_features(StateWriter& part) { save(features_, part); }
  // Parts of the features are of no use any more once a state of the fine-tuning is there.
  void save_state(StateWriter& state);
  [[nodiscard]] const CheckpointPace& pace() const { return pace_; }

 private:
  RunCheckpoints(Options options, std::string key, CheckpointFolder features,
                 CheckpointFolder states);
  [[nodiscard]] std::filesystem::path run_file() const;
  bool save(CheckpointFolder& folder, StateWriter& state);
  void tell_of_other_runs() const;

  Options options_;
  std::string key_;
  CheckpointFolder features_, states_;
  CheckpointPace pace_;
  std::optional<boost::json::object> host_;
};

}  // namespace atelier::vision
