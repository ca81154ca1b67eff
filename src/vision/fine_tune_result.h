// What a fine-tuning found out, as numbers and texts: a checkpoint keeps it
// (internal/fine_tune_state.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "vision/evaluation.h"

namespace atelier::vision {

struct EpochRecord {
  std::int64_t epoch = 0;
  double seconds = 0;
  double train_loss = 0, train_accuracy = 0;
  double validation_accuracy = 0, validation_top_k = 0, validation_loss = 0;
  double validation_f1 = 0;  // micro, with several labels a picture
};

struct FineTuneResult {
  std::vector<EpochRecord> epochs;
  std::int64_t best_epoch = 0;
  EvaluationRun best;  // validation at that epoch
  std::uint64_t pictures = 0;
  double images_per_second = 0;
  double processor_seconds = 0;
  double images_per_processor_second = 0;
  bool stopped = false;  // by SIGTERM
  bool out_of_time = false;
  std::map<std::string, std::string> damaged;  // path: reason
};

}  // namespace atelier::vision
