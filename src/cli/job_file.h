// A training job as people write it: a short YAML file or flags, turned into CreateTrainingJob's
// body.
//
//   name: fashion                       # a time is appended unless exact_name is true
//   algorithm: image-classification     # or  script: train.py  (with  source: FOLDER, framework:
//   pytorch) channels:
//     train: s3://pictures/fashion/train/
//     validation: s3://pictures/fashion/validation/
//   hyperparameters: {backbone: efficientnet-lite0, epochs: 8}
//   instance: ml.m5.large
//   output: s3://models/
//   max_runtime: 3600                   # seconds
//   metrics: {loss: "loss: ([0-9.]+)"}
//
// A file with SageMaker's own member names (TrainingJobName, AlgorithmSpecification, ...) is sent
// as it is.
#pragma once

#include <boost/json/fwd.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace atelier::cli {

struct JobDescription {
  std::string name = "job";
  bool exact_name = false;
  std::string algorithm;         // or script
  std::string image;             // an image URI, in place of either's own
  std::filesystem::path script;  // relative to source
  std::filesystem::path source;  // default: the script's folder
  std::string framework = "pytorch";
  std::map<std::string, std::string> channels;         // name -> s3://
  std::map<std::string, std::string> hyperparameters;  // as text; YAML numbers keep their spelling
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> metrics;  // name -> regular expression
  std::string instance = "ml.m5.large";
  std::string output;
  long max_runtime = 86400;
  bool network_isolation = false;
  std::shared_ptr<boost::json::value> raw;  // a file in SageMaker's own form
};

// Reads a file; a key that is not known is refused by name.
Result<JobDescription> parse_job_file(std::string_view yaml);

// What a job is to be called: the name, or "name-2026-11-30-07-05-55-123".
std::string job_name(const JobDescription& job, Time now);

// CreateTrainingJob's body. `source_uri`: where the script's source_dir archive was put, for
// scripts.
Result<boost::json::value> create_request(const JobDescription& job, const std::string& name,
                                          const std::string& default_output,
                                          const std::string& source_uri);

// Packs a script's source folder as the SDK does: a .tar.gz of its contents, at most 256 MiB.
Result<void> pack_source(const std::filesystem::path& folder, const std::filesystem::path& archive);

}  // namespace atelier::cli
