// Incremental training: a job that goes on with the model of an earlier one.
#pragma once

#include <filesystem>
#include <optional>

#include "base/result.h"
#include "vision/hyperparameters.h"
#include "vision/image_folder.h"
#include "vision/model_files.h"

namespace atelier::vision {

// What the model in the channel is: its files, or model.tar.gz unpacked into `scratch`. Nothing
// when the channel holds no whole model of ours (a weight file alone is no model).
Result<std::optional<ModelFacts>> find_earlier_model(const std::filesystem::path& channel,
                                                     const std::filesystem::path& scratch);

// Takes over what the hyperparameters leave open (network, image size), and refuses, by name, what
// differs: network, image_shape, resize, multi_label, and classes in number, name or order.
Result<void> continue_model(const ModelFacts& model, const ImageFolder& train, Hyperparameters& h);

}  // namespace atelier::vision
