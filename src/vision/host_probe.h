// Which arithmetic is fastest on this host, found by trying: hosts of one size differ by ten times
// in bfloat16 (reference/host.md), so no constant is right.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "vision/backbone.h"
#include "vision/hyperparameters.h"

namespace atelier::vision {

struct Candidate {
  Engine engine = Engine::kFused;
  double images_per_second = 0;  // of training steps; 0: not tried
  std::string note;              // why it was not tried
};

struct HostChoice {
  Engine engine = Engine::kFused;
  int threads = 1;
  std::vector<Candidate> candidates;
  bool from_cache = false;
};

struct ProbeOptions {
  std::string backbone;
  int image_size = 224;
  std::int64_t batch_size = 64;
  Precision precision = Precision::kAuto;
  std::string engine = "auto";
  std::int64_t threads = 0;
};

// Sets libtorch's threads, too. The result is kept in ATELIER_CACHE_DIR (or ~/.cache/atelier) under
// processor, libtorch, backbone, size and threads; a folder that cannot be written costs only the
// time.
Result<HostChoice> choose_engine(const ProbeOptions& options);

boost::json::object host_choice_to_json(const HostChoice& choice);

// Processors that this process may use.
int available_processors();
std::string processor_name();
std::string torch_version();

}  // namespace atelier::vision
