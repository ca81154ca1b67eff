// What a training job of the built-in algorithm found out, fetched from its output.tar.gz and
// shown: accuracies, the classes most confused, and where the pictures of mistakes lie.
#pragma once

#include <boost/json/fwd.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "objects/object_store.h"

namespace atelier::cli {

struct JobResults {
  std::string job_name;
  std::string model_uri;
  std::filesystem::path folder;
  std::vector<std::filesystem::path> files;        // what was unpacked, relative to folder
  std::shared_ptr<boost::json::value> evaluation;  // evaluation.json
};

// Downloads and unpacks output.tar.gz of an ended job (an answer of DescribeTrainingJob) below
// `folder`. Members that would land elsewhere are refused; the archive is bounded in size and
// count.
Result<JobResults> fetch_results(objects::ObjectStore& store, const boost::json::value& job,
                                 const std::filesystem::path& folder);

void print_results(const JobResults& results);
boost::json::value results_json(const JobResults& results);

// Unpacks regular files of a .tar.gz below `folder`.
Result<std::vector<std::filesystem::path>> unpack_archive(const std::filesystem::path& archive,
                                                          const std::filesystem::path& folder);

}  // namespace atelier::cli
