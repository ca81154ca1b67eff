// What a checkpoint of a fine-tuning holds besides the tensors of network, averages and optimiser.
// Each transfer() serves a StateWriter and a StateReader, so that the two cannot differ.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "vision/checkpoint.h"
#include "vision/fine_tune_result.h"

namespace atelier::vision {

struct FineTuneState {
  std::int64_t epoch = 1;
  std::uint64_t next_batch = 0;  // of this epoch's, in its own order
  bool epoch_trained = false;    // its batches are done; it is to be validated
  bool finished = false;         // no epoch is left
  std::int64_t steps = 0;
  double best_accuracy = -1;
  std::int64_t since_best = 0;
  double epoch_loss = 0, recent_loss = 0;
  std::int64_t epoch_correct = 0, epoch_pictures = 0;
  double start = 0;  // on the budget's clock
  double epoch_seconds = 0, training_seconds = 0, evaluation_seconds = 0;
  FineTuneResult result;
};

// What a state is read for: its numbers are indices into this.
struct StateBounds {
  std::size_t classes = 0;
  bool multi_label = false;
  std::size_t trained_pictures = 0;     // of an epoch
  std::size_t validation_pictures = 0;  // of the folder that `mistakes` count in
};
// kDataLoss, by name, when a number of a state that was read leads out of them. A digest protects a
// checkpoint from accidents alone.
Result<void> check_state(const FineTuneState& state, const StateBounds& bounds);

template <typename Archive>
void transfer(Archive& archive, const std::string& name, std::vector<DamagedPicture>& damaged) {
  archive.list(name, damaged, [](auto& to, const std::string& at, DamagedPicture& picture) {
    auto index = static_cast<std::int64_t>(picture.index);
    to(at + "index", index);
    picture.index = static_cast<std::uint32_t>(index);
    to(at + "path", picture.path);
    to(at + "reason", picture.reason.message);
  });
}

template <typename Archive>
void transfer(Archive& archive, const std::string& name, std::map<std::string, std::string>& map) {
  std::vector<std::pair<std::string, std::string>> pairs(map.begin(), map.end());
  archive.list(name, pairs, [](auto& to, const std::string& at, auto& pair) {
    to(at + "key", pair.first);
    to(at + "value", pair.second);
  });
  map = {pairs.begin(), pairs.end()};
}

template <typename Archive>
void transfer(Archive& archive, const std::string& name, EvaluationRun& run) {
  Evaluation& e = run.evaluation;
  archive(name + "count", e.count);
  archive(name + "k", e.k);
  archive(name + "top_1", e.top_1);
  archive(name + "top_k", e.top_k);
  archive(name + "loss", e.loss);
  archive(name + "macro_recall", e.macro_recall);
  archive(name + "macro_precision", e.macro_precision);
  archive(name + "macro_f1", e.macro_f1);
  archive(name + "macro_top_k", e.macro_top_k);
  archive(name + "multi_label", e.multi_label);
  archive(name + "micro_precision", e.micro_precision);
  archive(name + "micro_recall", e.micro_recall);
  archive(name + "micro_f1", e.micro_f1);
  archive(name + "exact", e.exact);
  archive(name + "classes", e.classes);
  archive(name + "confusion", e.confusion);
  archive(name + "mistakes", run.mistakes);
  transfer(archive, name + "damaged", run.damaged);
}

template <typename Archive>
void transfer(Archive& archive, FineTuneState& s) {
  archive("epoch", s.epoch);
  archive("next_batch", s.next_batch);
  archive("epoch_trained", s.epoch_trained);
  archive("finished", s.finished);
  archive("steps", s.steps);
  archive("best_accuracy", s.best_accuracy);
  archive("since_best", s.since_best);
  archive("epoch_loss", s.epoch_loss);
  archive("recent_loss", s.recent_loss);
  archive("epoch_correct", s.epoch_correct);
  archive("epoch_pictures", s.epoch_pictures);
  archive("start", s.start);
  archive("epoch_seconds", s.epoch_seconds);
  archive("training_seconds", s.training_seconds);
  archive("evaluation_seconds", s.evaluation_seconds);
  archive("epochs", s.result.epochs);
  archive("best_epoch", s.result.best_epoch);
  transfer(archive, "best.", s.result.best);
  archive("pictures", s.result.pictures);
  archive("processor_seconds", s.result.processor_seconds);
  archive("out_of_time", s.result.out_of_time);
  transfer(archive, "damaged", s.result.damaged);
}

}  // namespace atelier::vision
