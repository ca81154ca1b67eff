#include "vision/incremental.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace atelier::vision {
namespace {

Error differs(const std::string& what, const std::string& model, const std::string& here) {
  return Error{Code::kInvalidArgument,
               fmt::format("the model in channel 'model' has {} {}; this job has {}. To take only "
                           "its weights, name them: pretrained_weights=model.safetensors",
                           what, model, here)};
}

Result<void> check_classes(const std::vector<std::string>& model,
                           const std::vector<std::string>& here) {
  if (model.size() != here.size()) {
    return differs("num_classes", std::to_string(model.size()), std::to_string(here.size()));
  }
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (model[i] == here[i]) continue;
    return differs(fmt::format("as class {}", i), "'" + model[i] + "'", "'" + here[i] + "'");
  }
  return {};
}

constexpr const char* kOurModel = "the model in channel 'model'";

// A weight file, and nothing that says which classes and pictures it is for.
bool holds_weights_alone(const std::filesystem::path& folder) {
  bool weights = false;
  std::error_code failed;
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name == "classes.json" || name == "preprocess.json" || name == "model_card.json")
      return false;
    const std::string extension = it->path().extension().string();
    weights |= extension == ".safetensors" || extension == ".pth" || extension == ".pt";
  }
  return weights;
}

}  // namespace

Result<std::optional<ModelFacts>> find_earlier_model(const std::filesystem::path& channel,
                                                     const std::filesystem::path& scratch,
                                                     bool weights_wanted) {
  const bool packed = !std::filesystem::exists(channel / "model.safetensors") &&
                      std::filesystem::exists(channel / "model.tar.gz");
  const std::filesystem::path folder = packed ? scratch : channel;
  const std::vector<std::string> there = packed
                                             ? TRY(unpack_model(channel / "model.tar.gz", scratch))
                                             : TRY(model_folder_entries(channel));
  if (holds_weights_alone(folder)) {
    if (weights_wanted) return std::optional<ModelFacts>{};
    return Error{Code::kInvalidArgument,
                 fmt::format("{} is weights alone ({}), and use_pretrained_model=0 wants none: "
                             "give use_pretrained_model=1, or leave the channel out",
                             kOurModel, fmt::join(there, ", "))};
  }
  const Result<void> whole =
      check_model_files(folder, packed ? "model.tar.gz" : "the channel", there);
  if (!whole) return whole.error().within(kOurModel);
  Result<ModelFacts> facts = read_model_facts(folder);
  if (!facts) return facts.error().within(kOurModel);
  return std::optional<ModelFacts>(*std::move(facts));
}

Result<void> continue_model(const ModelFacts& model, const ImageFolder& train, Hyperparameters& h) {
  if (h.backbone_given && h.backbone != model.backbone) {
    return differs("backbone (num_layers)", model.backbone, h.backbone);
  }
  const Preprocess& p = model.preprocess;
  if (h.image_size && (*h.image_size != p.width || *h.image_size != p.height)) {
    return differs("image_shape", fmt::format("3,{},{}", p.height, p.width),
                   fmt::format("3,{0},{0}", *h.image_size));
  }
  if (h.resize && *h.resize != p.resize) {
    return differs("resize", std::to_string(p.resize), std::to_string(*h.resize));
  }
  if (h.multi_label != model.multi_label) {
    return differs("multi_label", model.multi_label ? "1" : "0", h.multi_label ? "1" : "0");
  }
  TRY(check_classes(model.classes, train.classes));
  h.backbone = model.backbone;
  h.image_size = p.width;
  return {};
}

}  // namespace atelier::vision
