// The channels of a job as folders of pictures, and which of them are trained on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "vision/hyperparameters.h"
#include "vision/image_folder.h"
#include "vision/job_folders.h"

namespace atelier::vision {

// Samples by number in their folder.
struct Split {
  const ImageFolder* train_folder = nullptr;
  std::vector<std::uint32_t> train;
  const ImageFolder* validation_folder = nullptr;
  std::vector<std::uint32_t> validation;
};

struct TrainingData {
  ImageFolder train;
  std::optional<ImageFolder> validation, test;
  std::vector<std::uint32_t> train_order,
      held_out;  // held_out: when there is no validation channel
  std::vector<std::string> warnings;
  std::string fingerprint;
  bool fingerprint_of_contents = false;

  // Points into this object.
  [[nodiscard]] Split split() const;
  [[nodiscard]] std::vector<std::uint64_t> trained_counts() const;  // by class
};

// Indexes the channels "train" (or "training"), "validation" and "test" and checks what the
// hyperparameters say about them.
Result<TrainingData> open_training_data(const JobFolders& folders, const Hyperparameters& h);

// `share` of each class, at most `limit` pictures in all, drawn the same way whatever the seed of
// the training is, so that trials with other seeds are compared on the same pictures.
void hold_out(const ImageFolder& folder, double share, std::size_t limit,
              std::vector<std::uint32_t>& train, std::vector<std::uint32_t>& held_out);

// 48, 64, 96, 160 or 224: a network input that shows what pictures of this size (the median of a
// sample) hold, without paying for pixels that they do not have.
Result<int> suitable_image_size(const ImageFolder& folder);

}  // namespace atelier::vision
