// `atelier-vision predict`: the classes of picture files, as lines of JSON.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "vision/fine_tune.h"

namespace atelier::vision {

struct PredictCommand {
  std::filesystem::path model;  // a folder or a model.tar.gz
  std::vector<std::string> files;
  std::size_t top_k = 3;
  bool probabilities = false;  // all of them, in the order of the classes, as "prediction"
  Print print;
};

// One line a file, in their order: {"file", "top": [{"label", "index", "probability"}]} or {"file",
// "error"}; a model with several labels a picture adds "labels", those from a probability of 1/2
// on. Returns how many files could not be read.
Result<std::size_t> run_prediction(const PredictCommand& command);

}  // namespace atelier::vision
