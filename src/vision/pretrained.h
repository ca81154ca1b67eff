// Weights from files into a network: where they are looked for, under which names, and a report of
// what fitted.
#pragma once

#include <boost/json/fwd.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "vision/backbone.h"

namespace atelier::vision {

// What a file had for the network. Only the classifier may be missing or of another shape.
struct WeightsReport {
  std::string file;
  std::string sha256;
  std::vector<std::string> loaded, missing, unexpected, mismatched;
  bool classifier_loaded = false;
};
boost::json::object weights_report_to_json(const WeightsReport& report);
std::string weights_report_line(const WeightsReport& report);  // for the log

// Our name (timm's for EfficientNet-Lite, torchvision's for ResNet) of a tensor that a file calls
// `name`; names of lukemelas' EfficientNet are translated, others come back as they are.
std::string translate_name(std::string_view backbone, const std::string& name);

// Copies what fits. kInvalidArgument, naming tensors, when anything but the classifier does not.
// `sha256` must be the file's when given.
Result<WeightsReport> load_weights(Network& network, const std::filesystem::path& file,
                                   const std::string& sha256 = {});

struct WeightsSource {
  std::filesystem::path file;
  std::string sha256;  // empty: not known beforehand
};
// In this order: `named` (absolute, or below the model channel), the model channel, the folder of
// weights that set-up fills (ATELIER_WEIGHTS_DIR, ../share/weights beside the program,
// .cache/weights above it). kNotFound says where it looked and how to go on without.
Result<WeightsSource> find_weights(const std::string& backbone, const std::string& named,
                                   const std::optional<std::filesystem::path>& model_channel,
                                   const std::filesystem::path& scratch);

}  // namespace atelier::vision
