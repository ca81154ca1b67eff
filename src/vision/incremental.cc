#include "vision/incremental.h"

#include <fmt/format.h>

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

}  // namespace

Result<std::optional<ModelFacts>> find_earlier_model(const std::filesystem::path& channel,
                                                     const std::filesystem::path& scratch) {
  std::filesystem::path folder = channel;
  if (!std::filesystem::exists(channel / "model.safetensors") &&
      std::filesystem::exists(channel / "model.tar.gz")) {
    TRY(unpack_model(channel / "model.tar.gz", scratch));
    folder = scratch;
  }
  for (const char* file : {"model.safetensors", "classes.json", "preprocess.json"}) {
    if (!std::filesystem::exists(folder / file)) return std::optional<ModelFacts>{};
  }
  Result<ModelFacts> facts = read_model_facts(folder);
  if (!facts) return facts.error().within("the model in channel 'model'");
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
