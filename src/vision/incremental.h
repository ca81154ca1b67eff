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
// when the channel holds a weight file alone and that is `weights_wanted`. Anything else is refused
// by what is missing: a job whose model is not quite ours would begin anew.
Result<std::optional<ModelFacts>> find_earlier_model(const std::filesystem::path& channel,
                                                     const std::filesystem::path& scratch,
                                                     bool weights_wanted);

// Takes over what the hyperparameters leave open (network, image size), and refuses, by name, what
// differs: network, image_shape, resize, multi_label, and classes in number, name or order.
Result<void> continue_model(const ModelFacts& model, const ImageFolder& train, Hyperparameters& h);

}  // namespace atelier::vision
