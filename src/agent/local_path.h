// The LocalPath of a request: a folder of the program that the agent copies to S3.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace atelier::agent {

// Where that folder is for the agent. Exactly one of the two is set.
struct LocalPath {
  std::string in_ml;    // below /opt/ml: relative to it, "checkpoints"
  std::string outside;  // any other folder inside the sandbox, absolute: it gets a mount of its own
};

// kInvalidArgument with the reason for a path that is not absolute, is written in an unusual way
// ("..", "//"), or is a folder that has another use: the system's, /opt/ml itself, input and code.
Result<LocalPath> place_local_path(std::string_view path);

}  // namespace atelier::agent
