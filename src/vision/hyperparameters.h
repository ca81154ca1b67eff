// The hyperparameters of a training: names, ranges and most defaults are those of SageMaker's Image
// Classification; what is ours besides is in docs (docs/image-classification.md).
//
//   Hyperparameters h = TRY(parse_hyperparameters({{"epochs", "3"}, {"learning_rate", "0.001"}}));
//
// Every value arrives as a string, perhaps JSON-encoded once more ("\"adam\""), as estimators send
// it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vision/optimizer.h"

namespace atelier::vision {

enum class FineTune { kAuto, kHead, kPartial, kFull };
std::string_view fine_tune_name(FineTune value);

enum class Precision { kAuto, kFloat32, kBfloat16 };

// Random views of the training pictures.
enum class AugmentationType { kNone, kCrop, kCropColor, kCropColorTransform };

struct Hyperparameters {
  // SageMaker's.
  std::optional<std::int64_t> num_classes;           // checked against the folders when given
  std::optional<std::int64_t> num_training_samples;  // a warning when it is wrong
  AugmentationType augmentation_type = AugmentationType::kNone;
  std::int64_t epochs = 30;
  std::int64_t mini_batch_size = 64;  // SageMaker: 32
  OptimizerOptions optimizer;         // adamw; SageMaker: sgd
  double learning_rate = 0;           // 0: by optimizer, see default_learning_rate()
  double lr_scheduler_factor = 0.1;
  std::vector<std::int64_t> lr_scheduler_step;  // empty: warm-up, then cosine to zero
  bool early_stopping = false;
  std::int64_t early_stopping_min_epochs = 10;
  std::int64_t early_stopping_patience = 5;
  double early_stopping_tolerance = 0;
  bool use_pretrained_model = true;  // SageMaker: 0
  // num_layers came without use_pretrained_model, which SageMaker then takes as 0: weights are used
  // where there are some.
  bool pretrained_where_there = false;
  bool use_weighted_loss = false;
  bool multi_label = false;  // a picture has any number of labels
  Precision precision = Precision::kAuto;
  std::optional<int> resize;  // shorter side before the centre crop
  std::int64_t top_k = 3;     // SageMaker: none

  // Ours.
  std::string backbone = "efficientnet-lite0";
  bool backbone_given = false;
  std::string label_attribute;     // of an augmented manifest; empty: the only one there is
  std::string pretrained_weights;  // a file, absolute or below the model channel
  FineTune fine_tune = FineTune::kAuto;
  std::optional<int> image_size;  // absent: by the size of the pictures
  std::optional<double> time_budget_seconds;
  std::uint64_t seed = 1;
  double label_smoothing = 0.05;
  double dropout_rate = 0.1;
  double head_learning_rate_factor = 4;  // the new classifier learns faster than the trunk
  bool random_flip = true;
  bool flip_average = true;       // predictions average a picture and its mirror image
  double random_crop_area = 1.0;  // smallest share of the picture that a training view shows
  bool fail_on_corrupt = false;
  double validation_split = 0.1;  // when there is no validation channel
  std::string engine = "auto";    // or fused-fp32, aten-fp32, aten-bf16
  std::int64_t threads = 0;       // 0: as many as the process may use
  std::string checkpoint;         // a folder; empty: the platform's, if it gives one
  std::optional<double> checkpoint_interval_seconds;  // absent: as often as costs a hundredth

  std::vector<std::string> warnings;  // what was accepted but has no effect
};

// Refuses a value outside its range, an unknown name (naming the nearest known one) and what cannot
// be honoured. Names that begin with "sagemaker_" or "_" are passed over.
Result<Hyperparameters> parse_hyperparameters(const std::map<std::string, std::string>& values);

// Reads hyperparameters.json; a missing file is no hyperparameters.
Result<std::map<std::string, std::string>> read_hyperparameters_file(const std::string& path);

double default_learning_rate(OptimizerKind kind);

}  // namespace atelier::vision
