#include "vision/pretrained.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "vision/job_folders.h"
#include "vision/model_files.h"
#include "vision/weights.h"

namespace atelier::vision {
namespace {

// The files that scripts/fetch-weights puts into the folder of weights.
struct Baked {
  std::string_view backbone, file, sha256;
};
constexpr std::array<Baked, 1> kBaked{
    {{"efficientnet-lite0", "efficientnet-lite0.pth",
      "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"}}};

constexpr std::array<int, 7> kLiteRepeats{1, 2, 2, 3, 3, 4, 1};

using Renames = std::vector<std::pair<std::string_view, std::string_view>>;

std::string replace_prefix(const std::string& name, const Renames& renames) {
  for (const auto& [from, to] : renames) {
    if (name.starts_with(from)) return std::string(to) + name.substr(from.size());
  }
  return name;
}

// "_blocks.3._depthwise_conv.weight" -> "blocks.2.0.conv_dw.weight"
std::string translate_lite(const std::string& name) {
  constexpr std::string_view kBlocks = "_blocks.";
  if (!name.starts_with(kBlocks)) {
    return replace_prefix(name, {{"_conv_stem.", "conv_stem."},
                                 {"_bn0.", "bn1."},
                                 {"_conv_head.", "conv_head."},
                                 {"_bn1.", "bn2."},
                                 {"_fc.", "classifier."}});
  }
  const std::size_t dot = name.find('.', kBlocks.size());
  if (dot == std::string::npos) return name;
  int block = std::atoi(name.substr(kBlocks.size(), dot - kBlocks.size()).c_str());
  std::size_t stage = 0;
  while (stage < kLiteRepeats.size() && block >= kLiteRepeats[stage])
    block -= kLiteRepeats[stage++];
  const Renames first{{"_depthwise_conv.", "conv_dw."},
                      {"_bn1.", "bn1."},
                      {"_project_conv.", "conv_pw."},
                      {"_bn2.", "bn2."}};
  const Renames later{{"_expand_conv.", "conv_pw."},    {"_bn0.", "bn1."},
                      {"_depthwise_conv.", "conv_dw."}, {"_bn1.", "bn2."},
                      {"_project_conv.", "conv_pwl."},  {"_bn2.", "bn3."}};
  return fmt::format("blocks.{}.{}.{}", stage, block,
                     replace_prefix(name.substr(dot + 1), stage == 0 ? first : later));
}

at::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return at::kDouble;
    case Dtype::kF32:
      return at::kFloat;
    case Dtype::kF16:
      return at::kHalf;
    case Dtype::kBF16:
      return at::kBFloat16;
    case Dtype::kI64:
      return at::kLong;
    case Dtype::kI32:
      return at::kInt;
    case Dtype::kI16:
      return at::kShort;
    case Dtype::kI8:
      return at::kChar;
    case Dtype::kU8:
      return at::kByte;
    case Dtype::kBool:
      return at::kBool;
  }
  return at::kFloat;
}

void copy_into(at::Tensor& target, const NamedTensor& source) {
  at::Tensor raw = at::empty(source.shape, scalar_type(source.dtype));
  if (!source.bytes.empty()) std::memcpy(raw.data_ptr(), source.bytes.data(), source.bytes.size());
  const at::NoGradGuard no_gradients;
  target.copy_(raw);
}

bool of_classifier(const Network& network, const NamedValue& value) {
  return value.unit == network.unit_count();
}

Result<void> check_fit(const Network& network, const WeightsReport& report) {
  std::vector<std::string> bad;
  for (const NamedValue& value : network.values()) {
    if (of_classifier(network, value)) continue;
    const auto has = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), value.name) != names.end();
    };
    if (has(report.missing) || has(report.mismatched)) bad.push_back(value.name);
  }
  if (bad.empty()) return {};
  const std::size_t shown = std::min<std::size_t>(bad.size(), 5);
  return Error{
      Code::kInvalidArgument,
      fmt::format("'{}' does not fit {}: {} of its {} tensors are missing or of another "
                  "shape, such as {}",
                  report.file, network.name(), bad.size(), network.values().size(),
                  fmt::join(bad.begin(), bad.begin() + static_cast<std::ptrdiff_t>(shown), ", "))};
}

Result<std::string> file_sha256(const std::filesystem::path& path) {
  const std::string bytes = TRY(read_file(path, std::size_t{8} << 30));
  return sha256_hex(bytes);
}

json::array names_to_json(const std::vector<std::string>& names) {
  json::array array;
  for (const std::string& name : names) array.emplace_back(name);
  return array;
}

// The weights in a model channel: model.safetensors or model.tar.gz of ours, else the only weight
// file.
Result<std::optional<std::filesystem::path>> weights_in_channel(
    const std::filesystem::path& channel, const std::filesystem::path& scratch) {
  if (std::filesystem::exists(channel / "model.safetensors"))
    return {channel / "model.safetensors"};
  if (std::filesystem::exists(channel / "model.tar.gz")) {
    TRY(unpack_model(channel / "model.tar.gz", scratch));
    if (std::filesystem::exists(scratch / "model.safetensors"))
      return {scratch / "model.safetensors"};
    return Error{Code::kInvalidArgument, fmt::format("'{}' holds no model.safetensors",
                                                     (channel / "model.tar.gz").string())};
  }
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(channel, ignored)) {
    const std::string extension = entry.path().extension();
    if (extension == ".pth" || extension == ".pt" || extension == ".safetensors") {
      files.push_back(entry.path());
    }
  }
  if (files.size() > 1) {
    return Error{Code::kInvalidArgument,
                 fmt::format("the model channel holds {} weight files; name one with the "
                             "hyperparameter 'pretrained_weights'",
                             files.size())};
  }
  if (files.empty()) return std::optional<std::filesystem::path>{};
  return {files.front()};
}

std::vector<std::filesystem::path> baked_folders() {
  std::vector<std::filesystem::path> folders;
  if (const auto named = environment("ATELIER_WEIGHTS_DIR")) folders.emplace_back(*named);
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return folders;
  folders.push_back(program.parent_path().parent_path() / "share" / "weights");
  for (std::filesystem::path above = program.parent_path(); above.has_relative_path();
       above = above.parent_path()) {
    folders.push_back(above / ".cache" / "weights");
  }
  return folders;
}

}  // namespace

std::string translate_name(std::string_view backbone, const std::string& name) {
  return backbone == "efficientnet-lite0" ? translate_lite(name) : name;
}

json::object weights_report_to_json(const WeightsReport& report) {
  return {{"file", std::filesystem::path(report.file).filename().string()},
          {"sha256", report.sha256},
          {"loaded", report.loaded.size()},
          {"missing", names_to_json(report.missing)},
          {"unexpected", names_to_json(report.unexpected)},
          {"mismatched", names_to_json(report.mismatched)}};
}

std::string weights_report_line(const WeightsReport& report) {
  return fmt::format("weights: file={} loaded={} missing={} unexpected={} mismatched={}",
                     std::filesystem::path(report.file).filename().string(), report.loaded.size(),
                     report.missing.size(), report.unexpected.size(), report.mismatched.size());
}

Result<WeightsReport> load_weights(Network& network, const std::filesystem::path& path,
                                   const std::string& sha256) {
  WeightsReport report;
  report.file = path.string();
  report.sha256 = TRY(file_sha256(path));
  if (!sha256.empty() && report.sha256 != sha256) {
    return Error{Code::kDataLoss, fmt::format("'{}' has SHA-256 {}, expected {}", path.string(),
                                              report.sha256, sha256)};
  }
  const WeightFile file = TRY(read_weights(path));
  std::map<std::string, const NamedTensor*> found;
  for (const NamedTensor& tensor : file.tensors()) {
    found[translate_name(network.name(), tensor.name)] = &tensor;
  }
  bool classifier = true;
  std::vector<std::pair<NamedValue*, const NamedTensor*>> fits;
  for (NamedValue& value : network.values()) {
    const auto entry = found.find(value.name);
    if (entry == found.end()) {
      report.missing.push_back(value.name);
    } else if (value.tensor.sizes().vec() != entry->second->shape) {
      report.mismatched.push_back(value.name);
    } else {
      report.loaded.push_back(value.name);
      fits.emplace_back(&value, entry->second);
    }
    if (of_classifier(network, value) && (fits.empty() || fits.back().first != &value))
      classifier = false;
    if (entry != found.end()) found.erase(entry);
  }
  for (const auto& [name, tensor] : found) {
    if (!name.ends_with("num_batches_tracked")) report.unexpected.push_back(name);
  }
  TRY(check_fit(network, report));
  for (auto& [value, tensor] : fits) copy_into(value->tensor, *tensor);
  report.classifier_loaded = classifier;
  return report;
}

Result<WeightsSource> find_weights(const std::string& backbone, const std::string& named,
                                   const std::optional<std::filesystem::path>& model_channel,
                                   const std::filesystem::path& scratch) {
  if (!named.empty()) {
    std::filesystem::path path = named;
    if (path.is_relative() && model_channel) path = *model_channel / path;
    if (std::filesystem::exists(path)) return WeightsSource{path, {}};
    return Error{Code::kNotFound,
                 fmt::format("hyperparameter 'pretrained_weights' is '{}'; there is no such file",
                             path.string())};
  }
  if (model_channel) {
    const auto file = TRY(weights_in_channel(*model_channel, scratch));
    if (file) return WeightsSource{*file, {}};
  }
  for (const std::filesystem::path& folder : baked_folders()) {
    for (const Baked& baked : kBaked) {
      if (baked.backbone == backbone && std::filesystem::exists(folder / baked.file)) {
        return WeightsSource{folder / baked.file, std::string(baked.sha256)};
      }
    }
  }
  return Error{Code::kNotFound,
               fmt::format("no pretrained weights of {}: not in a 'model' channel, not in "
                           "ATELIER_WEIGHTS_DIR, and set-up put none beside the program. Give a "
                           "'model' channel or 'pretrained_weights', or train from random weights "
                           "with use_pretrained_model=0",
                           backbone)};
}

}  // namespace atelier::vision
