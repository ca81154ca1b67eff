// The trained model as files, as they lie in model.tar.gz:
//   model.safetensors   weights
//   classes.json        {"classes": ["ankle-boot", ...]} in the order of the outputs, and
//                       "multi_label": true where a picture may have several
//   preprocess.json     from a picture to the network's input, and the views that are averaged
//   model_card.json     what it was made from, with what, and how good it is
#pragma once

#include <boost/json/fwd.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "vision/backbone.h"
#include "vision/preprocess.h"

namespace atelier::vision {

struct Model {
  Network network;
  std::vector<std::string> classes;
  Preprocess preprocess;
  bool flip_average = false;
  bool multi_label = false;
};

// Each file appears whole or not at all; model_card.json, written last, marks a complete model.
Result<void> save_model(const std::filesystem::path& folder, const Model& model,
                        const boost::json::object& card);

// From a folder, or from a model.tar.gz that is unpacked into `scratch`.
Result<Model> load_model(const std::filesystem::path& path, const std::filesystem::path& scratch);

// What a model's files say besides its weights, without reading them.
struct ModelFacts {
  std::string backbone;
  std::vector<std::string> classes;
  Preprocess preprocess;
  bool flip_average = false;
  bool multi_label = false;
};
Result<ModelFacts> read_model_facts(const std::filesystem::path& folder);

// Unpacks a model.tar.gz: plain files at its top only, at most 8 GB. What the archive has, a line a
// member, up to a bound.
Result<std::vector<std::string>> unpack_model(const std::filesystem::path& archive,
                                              const std::filesystem::path& folder);

// What a folder has, in the same words.
Result<std::vector<std::string>> model_folder_entries(const std::filesystem::path& folder);

// That the four files of a model of ours are there, or which are not, what `there` names instead,
// and what to do. `where` begins the message.
Result<void> check_model_files(const std::filesystem::path& folder, const std::string& where,
                               const std::vector<std::string>& there);

}  // namespace atelier::vision
