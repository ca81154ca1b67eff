#include "vision/model_files.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>

#include "archives/archive_reader.h"
#include "base/file.h"
#include "base/json.h"
#include "vision/pretrained.h"
#include "vision/weights.h"

namespace atelier::vision {
namespace {

Result<void> save_weights(const std::filesystem::path& path, const Network& network) {
  std::vector<at::Tensor> contiguous;
  std::vector<NamedTensor> tensors;
  for (const NamedValue& value : network.values()) {
    contiguous.push_back(value.tensor.detach().contiguous());
    const at::Tensor& tensor = contiguous.back();
    tensors.push_back({value.name, Dtype::kF32, tensor.sizes().vec(),
                       std::as_bytes(std::span(tensor.data_ptr<float>(),
                                               static_cast<std::size_t>(tensor.numel())))});
  }
  return write_safetensors(path, tensors, {{"format", "pt"}, {"backbone", network.name()}});
}

}  // namespace

Result<void> unpack_model(const std::filesystem::path& archive_path,
                          const std::filesystem::path& folder) {
  archives::ArchiveReader reader =
      TRY(archives::ArchiveReader::open(archive_path, archives::Formats::kTarGz, {}));
  while (const std::optional<archives::Member> member = TRY(reader.next())) {
    const std::filesystem::path name = std::filesystem::path(member->name).lexically_normal();
    if (member->kind != archives::Member::Kind::kFile) continue;
    if (name.has_parent_path() || name.empty() || name == ".." || name == ".") continue;
    const UniqueFd file = TRY(open_file(folder / name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW));
    TRY(reader.copy_to(file.get()));
  }
  return {};
}

Result<void> save_model(const std::filesystem::path& folder, const Model& model,
                        const json::object& card) {
  TRY(make_folders(folder));
  json::array classes;
  for (const std::string& name : model.classes) classes.emplace_back(name);
  json::object preprocess = preprocess_to_json(model.preprocess);
  json::array views{"as_is"};
  if (model.flip_average) views.emplace_back("mirrored");
  preprocess["views"] = std::move(views);
  TRY(save_weights(folder / "model.safetensors", model.network));
  json::object named{{"classes", std::move(classes)}};
  if (model.multi_label) named["multi_label"] = true;
  TRY(write_file_durably(folder / "classes.json", pretty_json(named) + "\n"));
  TRY(write_file_durably(folder / "preprocess.json", pretty_json(preprocess) + "\n"));
  return write_file_durably(folder / "model_card.json", pretty_json(card) + "\n");
}

Result<Model> load_model(const std::filesystem::path& path, const std::filesystem::path& scratch) {
  std::filesystem::path folder = path;
  if (!std::filesystem::is_directory(path)) {
    if (!std::filesystem::exists(path)) {
      return Error{Code::kNotFound, fmt::format("there is no model at '{}'", path.string())};
    }
    TRY(unpack_model(path, scratch));
    folder = scratch;
  }
  ModelFacts facts = TRY(read_model_facts(folder));
  Model model;
  model.classes = std::move(facts.classes);
  model.preprocess = facts.preprocess;
  model.flip_average = facts.flip_average;
  model.multi_label = facts.multi_label;
  model.network =
      TRY(make_network(facts.backbone, static_cast<std::int64_t>(model.classes.size()), 0));
  const WeightsReport report = TRY(load_weights(model.network, folder / "model.safetensors"));
  if (!report.classifier_loaded) {
    return Error{Code::kInvalidArgument,
                 fmt::format("the classifier of '{}' does not have {} classes", path.string(),
                             model.classes.size())};
  }
  return model;
}

Result<ModelFacts> read_model_facts(const std::filesystem::path& folder) {
  const json::value card = TRY(read_json_file(folder / "model_card.json"));
  const json::value classes = TRY(read_json_file(folder / "classes.json"));
  const json::value preprocess = TRY(read_json_file(folder / "preprocess.json"));
  const json::array* names = find_array(classes, "classes");
  if (names == nullptr) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' names no classes", (folder / "classes.json").string())};
  }
  ModelFacts facts;
  facts.backbone = find_string(card, "backbone").value_or("");
  facts.multi_label = find_bool(classes, "multi_label").value_or(false);
  for (const json::value& name : *names) {
    if (!name.is_string()) return Error{Code::kInvalidArgument, "a class name is no string"};
    facts.classes.emplace_back(name.as_string());
  }
  facts.preprocess = TRY(preprocess_from_json(preprocess));
  if (const json::array* views = find_array(preprocess, "views")) {
    facts.flip_average = views->size() > 1;
  }
  return facts;
}

}  // namespace atelier::vision
