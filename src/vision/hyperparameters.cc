#include "vision/hyperparameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace atelier::vision {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

Error refused(std::string_view name, std::string_view value, std::string_view wanted) {
  return Error{Code::kInvalidArgument,
               fmt::format("hyperparameter '{}' is '{}'; it must be {}", name, value, wanted)};
}

std::string range_text(std::string_view kind, double low, double high) {
  if (high == kNoLimit) return fmt::format("{} of at least {}", kind, low);
  return fmt::format("{} from {} to {}", kind, low, high);
}

Result<double> number(std::string_view name, const std::string& text, double low, double high) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < low || value > high) {
    return refused(name, text, range_text("a number", low, high));
  }
  return value;
}

Result<std::int64_t> integer(std::string_view name, const std::string& text, double low,
                             double high) {
  // Tuners send "32.0" for an integer; that is one.
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || value != std::floor(value) || value < low || value > high ||
      std::abs(value) > 9e15) {
    return refused(name, text, range_text("an integer", low, high));
  }
  return static_cast<std::int64_t>(value);
}

Result<bool> boolean(std::string_view name, const std::string& text) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "1" || lower == "true") return true;
  if (lower == "0" || lower == "false") return false;
  return refused(name, text, "0 or 1 (or true, false)");
}

// "\"adam\"" and "adam" are the same: framework estimators encode values as JSON.
std::string decoded(const std::string& text) {
  if (text.size() < 2 || text.front() != '"') return text;
  const Result<json::value> value = parse_json(text);
  if (value && value->is_string()) return std::string(value->as_string());
  return text;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

using Setter = std::function<Result<void>(Hyperparameters&, std::string_view, const std::string&)>;
using Table = std::map<std::string, Setter, std::less<>>;

// Setters of plain members.
template <typename T>
Setter real(T Hyperparameters::*member, double low, double high) {
  return [=](Hyperparameters& h, std::string_view name, const std::string& text) -> Result<void> {
    h.*member = TRY(number(name, text, low, high));
    return {};
  };
}
template <typename T>
Setter whole(T Hyperparameters::*member, double low, double high) {
  return [=](Hyperparameters& h, std::string_view name, const std::string& text) -> Result<void> {
    const std::int64_t value = TRY(integer(name, text, low, high));
    if constexpr (std::is_same_v<T, std::optional<int>>) {
      h.*member = static_cast<int>(value);
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      h.*member = static_cast<std::uint64_t>(value);
    } else {
      h.*member = value;
    }
    return {};
  };
}
Setter flag(bool Hyperparameters::*member) {
  return [=](Hyperparameters& h, std::string_view name, const std::string& text) -> Result<void> {
    h.*member = TRY(boolean(name, text));
    return {};
  };
}
Setter of_optimizer(double OptimizerOptions::*member, double low, double high) {
  return [=](Hyperparameters& h, std::string_view name, const std::string& text) -> Result<void> {
    h.optimizer.*member = TRY(number(name, text, low, high));
    return {};
  };
}

template <typename T>
Setter one_of(T Hyperparameters::*member, std::vector<std::pair<std::string, T>> choices) {
  return [=](Hyperparameters& h, std::string_view name, const std::string& text) -> Result<void> {
    std::vector<std::string> names;
    for (const auto& [choice, value] : choices) {
      if (choice == text) {
        h.*member = value;
        return {};
      }
      names.push_back(choice);
    }
    return refused(name, text, fmt::format("one of {}", fmt::join(names, ", ")));
  };
}

// Accepted so that unmodified clients run; the reason is told.
Setter without_effect(std::string reason) {
  return [=](Hyperparameters& h, std::string_view name, const std::string& text) -> Result<void> {
    h.warnings.push_back(
        fmt::format("hyperparameter '{}' = '{}' has no effect: {}", name, text, reason));
    return {};
  };
}

Result<void> set_image_shape(Hyperparameters& h, std::string_view name, const std::string& text) {
  int channels = 0;
  int height = 0;
  int width = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%d,%d,%d%c", &channels, &height, &width, &rest) != 3 ||
      channels != 3 || height != width || height < 16 || height > 1024) {
    return refused(name, text, "3,SIZE,SIZE with SIZE from 16 to 1024, such as 3,224,224");
  }
  if (!h.image_size) h.image_size = height;
  return {};
}

Result<void> set_scheduler_steps(Hyperparameters& h, std::string_view name,
                                 const std::string& text) {
  h.lr_scheduler_step.clear();
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const Result<std::int64_t> epoch = integer(name, text.substr(start, comma - start), 1, 1e6);
    if (!epoch || (!h.lr_scheduler_step.empty() && *epoch <= h.lr_scheduler_step.back())) {
      return refused(name, text, "increasing epochs with commas, such as 10,20");
    }
    h.lr_scheduler_step.push_back(*epoch);
    start = comma + 1;
  }
  return {};
}

Table sagemaker_table() {
  Table t;
  t["num_classes"] = whole(&Hyperparameters::num_classes, 2, 1e6);
  t["num_training_samples"] = whole(&Hyperparameters::num_training_samples, 1, 1e12);
  t["augmentation_type"] =
      one_of<AugmentationType>(&Hyperparameters::augmentation_type,
                               {{"none", AugmentationType::kNone},
                                {"crop", AugmentationType::kCrop},
                                {"crop_color", AugmentationType::kCropColor},
                                {"crop_color_transform", AugmentationType::kCropColorTransform}});
  t["beta_1"] = of_optimizer(&OptimizerOptions::beta_1, 0, 0.999999);
  t["beta_2"] = of_optimizer(&OptimizerOptions::beta_2, 0, 0.999999);
  t["eps"] = of_optimizer(&OptimizerOptions::epsilon, 1e-16, 1);
  t["gamma"] = of_optimizer(&OptimizerOptions::gamma, 0, 1);
  t["momentum"] = of_optimizer(&OptimizerOptions::momentum, 0, 0.999999);
  t["weight_decay"] = of_optimizer(&OptimizerOptions::weight_decay, 0, 1);
  t["early_stopping"] = flag(&Hyperparameters::early_stopping);
  t["early_stopping_min_epochs"] = whole(&Hyperparameters::early_stopping_min_epochs, 1, 1e6);
  t["early_stopping_patience"] = whole(&Hyperparameters::early_stopping_patience, 1, 1e6);
  t["early_stopping_tolerance"] = real(&Hyperparameters::early_stopping_tolerance, 0, 1);
  t["epochs"] = whole(&Hyperparameters::epochs, 1, 1e6);
  t["image_shape"] = set_image_shape;
  t["learning_rate"] = real(&Hyperparameters::learning_rate, 1e-8, 1);
  t["lr_scheduler_factor"] = real(&Hyperparameters::lr_scheduler_factor, 0, 1);
  t["lr_scheduler_step"] = set_scheduler_steps;
  t["mini_batch_size"] = whole(&Hyperparameters::mini_batch_size, 2, 4096);
  t["multi_label"] = flag(&Hyperparameters::multi_label);
  t["optimizer"] = [](Hyperparameters& h, std::string_view,
                      const std::string& text) -> Result<void> {
    h.optimizer.kind = TRY(parse_optimizer(text));
    return {};
  };
  t["precision_dtype"] =
      one_of<Precision>(&Hyperparameters::precision, {{"auto", Precision::kAuto},
                                                      {"float32", Precision::kFloat32},
                                                      {"bfloat16", Precision::kBfloat16},
                                                      {"float16", Precision::kBfloat16}});
  t["resize"] = whole(&Hyperparameters::resize, 16, 2048);
  t["top_k"] = whole(&Hyperparameters::top_k, 2, 1e6);
  t["use_pretrained_model"] = flag(&Hyperparameters::use_pretrained_model);
  t["use_weighted_loss"] = flag(&Hyperparameters::use_weighted_loss);
  t["num_layers"] = [](Hyperparameters& h, std::string_view name,
                       const std::string& text) -> Result<void> {
    if (text != "18") return refused(name, text, "18, the one depth of ResNet that is built in");
    h.backbone = "resnet-18";
    h.backbone_given = true;
    return {};
  };
  t["checkpoint_frequency"] = without_effect("the best epoch is always kept");
  t["kv_store"] = without_effect("training runs on one host");
  return t;
}

const Table& table() {
  static const Table all = [] {
    Table t = sagemaker_table();
    t["backbone"] = [](Hyperparameters& h, std::string_view name,
                       const std::string& text) -> Result<void> {
      h.backbone_given = true;
      return one_of<std::string>(&Hyperparameters::backbone,
                                 {{"efficientnet-lite0", "efficientnet-lite0"},
                                  {"resnet-18", "resnet-18"}})(h, name, text);
    };
    t["label_attribute"] = [](Hyperparameters& h, std::string_view,
                              const std::string& text) -> Result<void> {
      h.label_attribute = text;
      return {};
    };
    t["pretrained_weights"] = [](Hyperparameters& h, std::string_view,
                                 const std::string& text) -> Result<void> {
      h.pretrained_weights = text;
      return {};
    };
    t["checkpoint"] = [](Hyperparameters& h, std::string_view name,
                         const std::string& text) -> Result<void> {
      if (!text.starts_with('/')) return refused(name, text, "the absolute path of a folder");
      h.checkpoint = text;
      return {};
    };
    t["checkpoint_interval_seconds"] = real(&Hyperparameters::checkpoint_interval_seconds, 0, 1e6);
    t["fine_tune"] = one_of<FineTune>(&Hyperparameters::fine_tune, {{"auto", FineTune::kAuto},
                                                                    {"head", FineTune::kHead},
                                                                    {"partial", FineTune::kPartial},
                                                                    {"full", FineTune::kFull}});
    t["image_size"] = whole(&Hyperparameters::image_size, 16, 1024);
    t["time_budget_seconds"] = real(&Hyperparameters::time_budget_seconds, 1, 1e8);
    t["seed"] = whole(&Hyperparameters::seed, 0, 9e15);
    t["label_smoothing"] = real(&Hyperparameters::label_smoothing, 0, 0.9);
    t["dropout_rate"] = real(&Hyperparameters::dropout_rate, 0, 0.9);
    t["head_learning_rate_factor"] = real(&Hyperparameters::head_learning_rate_factor, 0.01, 1000);
    t["random_flip"] = flag(&Hyperparameters::random_flip);
    t["flip_average"] = flag(&Hyperparameters::flip_average);
    t["random_crop_area"] = real(&Hyperparameters::random_crop_area, 0.05, 1);
    t["fail_on_corrupt"] = flag(&Hyperparameters::fail_on_corrupt);
    t["validation_split"] = real(&Hyperparameters::validation_split, 0.001, 0.9);
    t["engine"] = one_of<std::string>(&Hyperparameters::engine, {{"auto", "auto"},
                                                                 {"fused-fp32", "fused-fp32"},
                                                                 {"aten-fp32", "aten-fp32"},
                                                                 {"aten-bf16", "aten-bf16"}});
    t["threads"] = whole(&Hyperparameters::threads, 0, 1024);
    return t;
  }();
  return all;
}

Error unknown(const std::string& name) {
  std::string nearest;
  std::size_t distance = std::string::npos;
  for (const auto& [known, setter] : table()) {
    const std::size_t d = edit_distance(name, known);
    if (d < distance) {
      distance = d;
      nearest = known;
    }
  }
  return Error{
      Code::kInvalidArgument,
      fmt::format("hyperparameter '{}' is not known; the nearest that is: '{}'", name, nearest)};
}

}  // namespace

std::string_view fine_tune_name(FineTune value) {
  switch (value) {
    case FineTune::kAuto:
      return "auto";
    case FineTune::kHead:
      return "head";
    case FineTune::kPartial:
      return "partial";
    case FineTune::kFull:
      return "full";
  }
  return "unknown";
}

double default_learning_rate(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
    case OptimizerKind::kNag:
      return 0.02;
    case OptimizerKind::kAdam:
    case OptimizerKind::kRmsprop:
      return 1e-3;
    case OptimizerKind::kAdamW:
      return 2e-3;
  }
  return 1e-3;
}

Result<Hyperparameters> parse_hyperparameters(const std::map<std::string, std::string>& values) {
  Hyperparameters h;
  h.optimizer.beta_2 = 0.99;
  h.optimizer.weight_decay = -1;
  for (const auto& [name, raw] : values) {
    if (name.starts_with("sagemaker_") || name.starts_with("_")) continue;
    const auto setter = table().find(name);
    if (setter == table().end()) return unknown(name);
    TRY(setter->second(h, name, decoded(raw)));
  }
  h.pretrained_where_there = values.contains("num_layers") &&
                             !values.contains("use_pretrained_model") &&
                             h.pretrained_weights.empty();
  if (h.optimizer.weight_decay < 0) {
    h.optimizer.weight_decay = h.optimizer.kind == OptimizerKind::kAdamW ? 0.02 : 1e-4;
  }
  if (h.learning_rate == 0) h.learning_rate = default_learning_rate(h.optimizer.kind);
  if (h.resize && h.image_size && *h.resize < *h.image_size) {
    return refused("resize", std::to_string(*h.resize),
                   fmt::format("at least image_size, which is {}", *h.image_size));
  }
  return h;
}

Result<std::map<std::string, std::string>> read_hyperparameters_file(const std::string& path) {
  std::map<std::string, std::string> values;
  const Result<json::value> document = read_json_file(path);
  if (!document) {
    if (document.error().code == Code::kNotFound) return values;
    return document.error();
  }
  if (!document->is_object()) {
    return Error{Code::kInvalidArgument, fmt::format("'{}' holds no JSON object", path)};
  }
  for (const auto& [name, value] : document->as_object()) {
    values[std::string(name)] =
        value.is_string() ? std::string(value.as_string()) : json::serialize(value);
  }
  return values;
}

}  // namespace atelier::vision
