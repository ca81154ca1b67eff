// `atelier-vision train`: one training job over the folders of a container.
#pragma once

#include <functional>

#include "base/result.h"
#include "vision/fine_tune.h"
#include "vision/job_folders.h"

namespace atelier::vision {

struct TrainCommand {
  JobFolders folders;
  Print print;                    // one line to standard output
  std::function<bool()> stopped;  // SIGTERM came: finish the step, keep what there is
};

// Reads hyperparameters and channels, trains, and leaves model/ and output/data/. What the caller
// got wrong is an Error that names thing, value and limit.
Result<void> run_training(const TrainCommand& command);

}  // namespace atelier::vision
