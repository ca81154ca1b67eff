#include "vision/model_files.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "archives/archive_reader.h"
#include "base/file.h"
#include "base/json.h"
#include "vision/picture_lists.h"
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

constexpr std::array<const char*, 4> kModelFiles{"model.safetensors", "classes.json",
                                                 "preprocess.json", "model_card.json"};

// What SageMaker's own image-classification leaves: NAME-symbol.json, NAME-0001.params.
bool is_of_mxnet(std::string_view name) {
  return name.find("-symbol.json") != std::string_view::npos ||
         name.find(".params") != std::string_view::npos ||
         name.find("model-shapes.json") != std::string_view::npos;
}

std::string described(const archives::Member& member, bool at_top) {
  using Kind = archives::Member::Kind;
  const char* note = member.kind == Kind::kLink       ? " (a link)"
                     : member.kind == Kind::kHardLink ? " (a hard link)"
                     : member.kind == Kind::kOther    ? " (no plain file)"
                     : !at_top                        ? " (within a folder)"
                                                      : "";
  return fmt::format("'{}'{}", shown(member.name), note);
}

}  // namespace

Result<std::vector<std::string>> unpack_model(const std::filesystem::path& archive_path,
                                              const std::filesystem::path& folder) {
  constexpr std::size_t kMaxNamed = 1000;
  archives::ArchiveReader reader =
      TRY(archives::ArchiveReader::open(archive_path, archives::Formats::kTarGz, {}));
  std::vector<std::string> members;
  while (const std::optional<archives::Member> member = TRY(reader.next())) {
    if (member->kind == archives::Member::Kind::kFolder) continue;
    const std::filesystem::path name = std::filesystem::path(member->name).lexically_normal();
    const bool at_top = !name.has_parent_path() && !name.empty() && name != ".." && name != ".";
    if (members.size() < kMaxNamed) members.push_back(described(*member, at_top));
    if (member->kind != archives::Member::Kind::kFile || !at_top) continue;
    const UniqueFd file = TRY(open_file(folder / name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW));
    TRY(reader.copy_to(file.get()));
  }
  return members;
}

Result<void> check_model_files(const std::filesystem::path& folder, const std::string& where,
                               const std::vector<std::string>& there) {
  constexpr std::size_t kMaxShown = 10;
  std::vector<std::string> missing;
  for (const char* file : kModelFiles) {
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(folder / file, unknown)) missing.emplace_back(file);
  }
  if (missing.empty()) return {};
  const std::size_t count = std::min(there.size(), kMaxShown);
  std::string has = fmt::format(
      "{}", fmt::join(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  if (there.size() > count) has += fmt::format(" and {} more", there.size() - count);
  const bool mxnet = std::ranges::any_of(there, is_of_mxnet);
  return Error{
      Code::kInvalidArgument,
      fmt::format("{} has no {} at its top; it has {}. {}", where, fmt::join(missing, ", "),
                  has.empty() ? "nothing" : has,
                  mxnet ? "That is a model of MXNet, as SageMaker's own image-classification "
                          "leaves it, which cannot be gone on from here"
                        : "A job of image-classification leaves the four as plain files")};
}

Result<std::vector<std::string>> model_folder_entries(const std::filesystem::path& folder) {
  std::vector<std::string> entries;
  std::error_code failed;
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    entries.push_back(fmt::format("'{}'", shown(it->path().filename().string())));
  }
  if (failed) return error_from_errno(fmt::format("reading '{}'", folder.string()), failed.value());
  std::ranges::sort(entries);
  return entries;
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
  std::vector<std::string> there;
  if (!std::filesystem::is_directory(path)) {
    if (!std::filesystem::exists(path)) {
      return Error{Code::kNotFound, fmt::format("there is no model at '{}'", path.string())};
    }
    there = TRY(unpack_model(path, scratch));
    folder = scratch;
  } else {
    there = TRY(model_folder_entries(path));
  }
  TRY(check_model_files(folder, fmt::format("'{}'", path.string()), there));
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
  if (names->size() > kMaxClasses) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("classes.json names {} classes; the limit is {}", names->size(), kMaxClasses)};
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
