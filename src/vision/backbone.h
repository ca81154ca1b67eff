// The networks: named tensors and a forward pass, without torch::nn.
//
//   Network network = TRY(make_network("efficientnet-lite0", 20, seed));
//   at::Tensor pooled = network.features(pictures, {.train = true});     // NCHW, channels-last
//   at::Tensor logits = network.logits(pooled);
//
// A network is a sequence of units; a fine-tuning that leaves the first ones alone runs them
// without gradients and with their running statistics, so they stay bit-equal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vision/preprocess.h"

namespace atelier::vision {

// How the arithmetic is done; chosen by the probe of the host (host_probe.h).
enum class Engine {
  kFused,     // our kernels for depthwise convolution and normalisation, fp32
  kAten,      // ATen throughout, fp32
  kAtenBf16,  // ATen with autocast to bfloat16
};
std::string_view engine_name(Engine engine);
Result<Engine> parse_engine(std::string_view name);

struct Pass {
  bool train = false;  // batch statistics where units are trained
  std::size_t frozen_units = 0;
  Engine engine = Engine::kFused;
};

// A tensor of the network with the name it has in files. Buffers are statistics, not trained.
struct NamedValue {
  std::string name;
  at::Tensor tensor;
  bool buffer = false;
  std::size_t unit = 0;  // which unit it belongs to; unit_count() for the classifier
};

class Network {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&, const Pass&, bool trained)>;

  // Pooled features [batch, feature_count]; `pictures` is [batch, 3, height, width] channels-last.
  [[nodiscard]] at::Tensor features(const at::Tensor& pictures, const Pass& pass) const;
  [[nodiscard]] at::Tensor logits(const at::Tensor& pooled) const;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::size_t unit_count() const { return units_.size(); }
  [[nodiscard]] std::int64_t feature_count() const { return feature_count_; }
  [[nodiscard]] std::int64_t class_count() const;
  // In the order of files.
  [[nodiscard]] const std::vector<NamedValue>& values() const { return values_; }
  [[nodiscard]] std::vector<NamedValue>& values() { return values_; }
  // Units to leave alone when only the last part is fine-tuned.
  [[nodiscard]] std::size_t partial_boundary() const { return partial_boundary_; }
  // Trains exactly the classifier and the units from `frozen_units` on.
  void set_trained(std::size_t frozen_units);

  // For the builders in backbone.cc.
  void add_unit(Forward forward) { units_.push_back(std::move(forward)); }
  at::Tensor add_value(std::string name, at::Tensor tensor, bool buffer);
  void finish(std::string name, std::string classifier, std::int64_t features, std::int64_t classes,
              std::size_t partial_boundary, std::uint64_t seed);

 private:
  std::string name_;
  std::vector<Forward> units_;
  std::vector<NamedValue> values_;
  at::Tensor classifier_weight_, classifier_bias_;
  std::int64_t feature_count_ = 0;
  std::size_t partial_boundary_ = 0;
};

// "efficientnet-lite0" or "resnet-18", with random weights drawn from `seed`.
Result<Network> make_network(std::string_view backbone, std::int64_t classes, std::uint64_t seed);
std::vector<std::string_view> backbone_names();

// What the pretrained weights of the backbone expect: mean and deviation, at `size` x `size`.
Preprocess default_preprocess(std::string_view backbone, int size);

}  // namespace atelier::vision
