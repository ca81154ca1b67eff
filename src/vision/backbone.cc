#include "vision/backbone.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "vision/ops.h"

namespace atelier::vision {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Clamp kRelu6{0.0F, 6.0F};
constexpr Clamp kRelu{0.0F, kInfinity};
constexpr Clamp kNoClamp{-kInfinity, kInfinity};

struct ConvSpec {
  std::int64_t in, out, kernel, stride;
  std::int64_t groups = 1;
  bool same = false;  // TensorFlow's padding instead of kernel / 2
};

// A convolution with its normalisation and clamp, the brick of both networks.
struct ConvNorm {
  at::Tensor weight;
  NormState norm;
  ConvSpec spec;
  Clamp clamp;

  at::Tensor operator()(const at::Tensor& input, const Pass& pass, bool trained,
                        const at::Tensor& residual = {}) const {
    const at::Tensor convolved = convolve(input, pass);
    NormState state = norm;
    state.use_batch_statistics = pass.train && trained;
    if (pass.engine == Engine::kFused) return norm_clamp(convolved, state, clamp, residual);
    at::Tensor output =
        at::batch_norm(convolved, state.weight, state.bias, state.running_mean, state.running_var,
                       state.use_batch_statistics, state.momentum, state.epsilon, false);
    if (residual.defined()) output = output + residual;
    if (std::isfinite(clamp.high)) return at::hardtanh(output, clamp.low, clamp.high);
    return std::isfinite(clamp.low) ? at::relu(output) : output;
  }

 private:
  [[nodiscard]] at::Tensor convolve(const at::Tensor& input, const Pass& pass) const {
    const bool depthwise = spec.groups == spec.in && spec.groups > 1;
    if (depthwise && spec.same && pass.engine == Engine::kFused) {
      return depthwise_conv(input, weight, spec.stride);
    }
    const std::array<std::int64_t, 2> stride{spec.stride, spec.stride};
    const std::array<std::int64_t, 2> dilation{1, 1};
    if (!spec.same) {
      const std::array<std::int64_t, 2> padding{spec.kernel / 2, spec.kernel / 2};
      return at::conv2d(input, weight, {}, stride, padding, dilation, spec.groups);
    }
    const SamePadding rows = same_padding(input.size(2), spec.kernel, spec.stride);
    const SamePadding columns = same_padding(input.size(3), spec.kernel, spec.stride);
    if (rows.before == rows.after && columns.before == columns.after) {
      const std::array<std::int64_t, 2> padding{rows.before, columns.before};
      return at::conv2d(input, weight, {}, stride, padding, dilation, spec.groups);
    }
    const std::array<std::int64_t, 4> padding{columns.before, columns.after, rows.before,
                                              rows.after};
    const std::array<std::int64_t, 2> none{0, 0};
    return at::conv2d(at::constant_pad_nd(input, padding), weight, {}, stride, none, dilation,
                      spec.groups);
  }
};

// Adds bricks to a network under their names in files.
class Builder {
 public:
  Builder(Network& network, double epsilon, double momentum, std::uint64_t seed)
      : network_(network), epsilon_(epsilon), momentum_(momentum), seed_(seed) {}

  ConvNorm conv_norm(const std::string& conv, const std::string& norm, const ConvSpec& spec,
                     Clamp clamp) {
    ConvNorm brick;
    brick.spec = spec;
    brick.clamp = clamp;
    brick.weight = network_.add_value(conv + ".weight", random_weight(spec), false);
    const auto constant = [&](const char* part, double value, bool buffer) {
      return network_.add_value(norm + part, at::full({spec.out}, value, at::kFloat), buffer);
    };
    brick.norm.weight = constant(".weight", 1, false);
    brick.norm.bias = constant(".bias", 0, false);
    brick.norm.running_mean = constant(".running_mean", 0, true);
    brick.norm.running_var = constant(".running_var", 1, true);
    brick.norm.epsilon = epsilon_;
    brick.norm.momentum = momentum_;
    return brick;
  }

 private:
  // He's normal distribution over the outputs that a weight reaches (fan out).
  at::Tensor random_weight(const ConvSpec& spec) {
    at::Tensor weight =
        at::empty({spec.out, spec.in / spec.groups, spec.kernel, spec.kernel}, at::kFloat);
    const double fan_out = static_cast<double>(spec.kernel * spec.kernel * spec.out) /
                           static_cast<double>(spec.groups);
    const double deviation = std::sqrt(2.0 / fan_out);
    float* values = weight.data_ptr<float>();
    for (std::int64_t i = 0; i < weight.numel(); ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      // Box and Muller's normal deviate from two uniform ones.
      const double u = 1.0 - rng_uniform(seed_, stream_, 2 * index);
      const double v = rng_uniform(seed_, stream_, 2 * index + 1);
      values[i] = static_cast<float>(deviation * std::sqrt(-2.0 * std::log(u)) *
                                     std::cos(6.283185307179586 * v));
    }
    ++stream_;
    return weight;
  }

  Network& network_;
  double epsilon_;
  double momentum_;
  std::uint64_t seed_;
  std::uint64_t stream_ = 0;
};

struct LiteStage {
  std::int64_t repeats, kernel, stride, expand, in, out;
};
constexpr std::array<LiteStage, 7> kLite0{{{1, 3, 1, 1, 32, 16},
                                           {2, 3, 2, 6, 16, 24},
                                           {2, 5, 2, 6, 24, 40},
                                           {3, 3, 2, 6, 40, 80},
                                           {3, 5, 1, 6, 80, 112},
                                           {4, 5, 2, 6, 112, 192},
                                           {1, 3, 1, 6, 192, 320}}};

// An inverted bottleneck; the first stage has no expansion. Names are those of timm's
// tf_efficientnet_lite0.
void add_lite_block(Network& network, Builder& builder, const std::string& prefix,
                    const LiteStage& stage, std::int64_t in, std::int64_t stride) {
  const std::int64_t wide = in * stage.expand;
  const ConvSpec depthwise{wide, wide, stage.kernel, stride, wide, true};
  const bool skips = stride == 1 && in == stage.out;
  if (stage.expand == 1) {
    auto dw = builder.conv_norm(prefix + "conv_dw", prefix + "bn1", depthwise, kRelu6);
    auto project =
        builder.conv_norm(prefix + "conv_pw", prefix + "bn2", {wide, stage.out, 1, 1}, kNoClamp);
    network.add_unit([=](const at::Tensor& x, const Pass& pass, bool trained) {
      return project(dw(x, pass, trained), pass, trained, skips ? x : at::Tensor());
    });
    return;
  }
  auto expand = builder.conv_norm(prefix + "conv_pw", prefix + "bn1", {in, wide, 1, 1}, kRelu6);
  auto dw = builder.conv_norm(prefix + "conv_dw", prefix + "bn2", depthwise, kRelu6);
  auto project =
      builder.conv_norm(prefix + "conv_pwl", prefix + "bn3", {wide, stage.out, 1, 1}, kNoClamp);
  network.add_unit([=](const at::Tensor& x, const Pass& pass, bool trained) {
    return project(dw(expand(x, pass, trained), pass, trained), pass, trained,
                   skips ? x : at::Tensor());
  });
}

Network make_lite0(std::int64_t classes, std::uint64_t seed) {
  Network network;
  Builder builder(network, 1e-3, 0.1, seed);
  auto stem = builder.conv_norm("conv_stem", "bn1", {3, 32, 3, 2, 1, true}, kRelu6);
  network.add_unit(stem);
  std::size_t boundary = 0;
  for (std::size_t s = 0; s < kLite0.size(); ++s) {
    if (s == 4) boundary = network.unit_count();
    for (std::int64_t i = 0; i < kLite0[s].repeats; ++i) {
      add_lite_block(network, builder, fmt::format("blocks.{}.{}.", s, i), kLite0[s],
                     i == 0 ? kLite0[s].in : kLite0[s].out, i == 0 ? kLite0[s].stride : 1);
    }
  }
  auto head = builder.conv_norm("conv_head", "bn2", {320, 1280, 1, 1}, kRelu6);
  network.add_unit(head);
  network.finish("efficientnet-lite0", "classifier", 1280, classes, boundary, seed);
  return network;
}

void add_basic_block(Network& network, Builder& builder, const std::string& prefix, std::int64_t in,
                     std::int64_t out, std::int64_t stride) {
  auto first = builder.conv_norm(prefix + "conv1", prefix + "bn1", {in, out, 3, stride}, kRelu);
  auto second = builder.conv_norm(prefix + "conv2", prefix + "bn2", {out, out, 3, 1}, kRelu);
  if (stride == 1) {
    network.add_unit([=](const at::Tensor& x, const Pass& pass, bool trained) {
      return second(first(x, pass, trained), pass, trained, x);
    });
    return;
  }
  auto shortcut = builder.conv_norm(prefix + "downsample.0", prefix + "downsample.1",
                                    {in, out, 1, stride}, kNoClamp);
  network.add_unit([=](const at::Tensor& x, const Pass& pass, bool trained) {
    return second(first(x, pass, trained), pass, trained, shortcut(x, pass, trained));
  });
}

Network make_resnet18(std::int64_t classes, std::uint64_t seed) {
  Network network;
  Builder builder(network, 1e-5, 0.1, seed);
  auto stem = builder.conv_norm("conv1", "bn1", {3, 64, 7, 2}, kRelu);
  network.add_unit([=](const at::Tensor& x, const Pass& pass, bool trained) {
    return at::max_pool2d(stem(x, pass, trained), {3, 3}, {2, 2}, {1, 1});
  });
  std::size_t boundary = 0;
  std::int64_t in = 64;
  for (std::int64_t stage = 1; stage <= 4; ++stage) {
    if (stage == 4) boundary = network.unit_count();
    const std::int64_t out = std::int64_t{32} << stage;
    for (std::int64_t i = 0; i < 2; ++i) {
      add_basic_block(network, builder, fmt::format("layer{}.{}.", stage, i), in, out,
                      i == 0 && stage > 1 ? 2 : 1);
      in = out;
    }
  }
  network.finish("resnet-18", "fc", 512, classes, boundary, seed);
  return network;
}

// Autocast to bfloat16 for a scope; the functions were renamed in libtorch 2.4.
class AutocastScope {
 public:
  explicit AutocastScope(bool on) : on_(on) {
    if (!on_) return;
    set(true);
  }
  ~AutocastScope() {
    if (!on_) return;
    set(false);
    at::autocast::clear_cache();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  static void set(bool on) {
#if ATELIER_TORCH_VERSION >= 20400
    at::autocast::set_autocast_enabled(at::kCPU, on);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
#else
    at::autocast::set_cpu_enabled(on);
    at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
#endif
  }
  bool on_;
};

}  // namespace

std::string_view engine_name(Engine engine) {
  switch (engine) {
    case Engine::kFused:
      return "fused-fp32";
    case Engine::kAten:
      return "aten-fp32";
    case Engine::kAtenBf16:
      return "aten-bf16";
  }
  return "unknown";
}

Result<Engine> parse_engine(std::string_view name) {
  for (const Engine engine : {Engine::kFused, Engine::kAten, Engine::kAtenBf16}) {
    if (name == engine_name(engine)) return engine;
  }
  return Error{Code::kInvalidArgument,
               fmt::format("engine '{}' is none of fused-fp32, aten-fp32, aten-bf16", name)};
}

at::Tensor Network::features(const at::Tensor& pictures, const Pass& pass) const {
  const AutocastScope autocast(pass.engine == Engine::kAtenBf16);
  at::Tensor x = pictures;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const bool trained = unit >= pass.frozen_units;
    if (trained) {
      x = units_[unit](x, pass, true);
    } else {
      const c10::AutoGradMode no_gradients(false);
      x = units_[unit](x, pass, false);
    }
  }
  return x.to(at::kFloat).mean({2, 3});
}

at::Tensor Network::logits(const at::Tensor& pooled) const {
  return at::linear(pooled, classifier_weight_, classifier_bias_);
}

std::int64_t Network::class_count() const { return classifier_weight_.size(0); }

void Network::set_trained(std::size_t frozen_units) {
  for (NamedValue& value : values_) {
    if (!value.buffer) value.tensor.set_requires_grad(value.unit >= frozen_units);
  }
}

at::Tensor Network::add_value(std::string name, at::Tensor tensor, bool buffer) {
  values_.push_back({std::move(name), tensor, buffer, units_.size()});
  return tensor;
}

void Network::finish(std::string name, std::string classifier, std::int64_t features,
                     std::int64_t classes, std::size_t partial_boundary, std::uint64_t seed) {
  name_ = std::move(name);
  feature_count_ = features;
  partial_boundary_ = partial_boundary;
  at::Tensor weight = at::empty({classes, features}, at::kFloat);
  const double bound = 1.0 / std::sqrt(static_cast<double>(features));
  constexpr std::uint64_t kClassifierStream = 1'000'000;
  for (std::int64_t i = 0; i < weight.numel(); ++i) {
    const double u = rng_uniform(seed, kClassifierStream, static_cast<std::uint64_t>(i));
    weight.data_ptr<float>()[i] = static_cast<float>((2 * u - 1) * bound);
  }
  classifier_weight_ = add_value(classifier + ".weight", weight, false);
  classifier_bias_ = add_value(classifier + ".bias", at::zeros({classes}, at::kFloat), false);
}

std::vector<std::string_view> backbone_names() { return {"efficientnet-lite0", "resnet-18"}; }

Result<Network> make_network(std::string_view backbone, std::int64_t classes, std::uint64_t seed) {
  if (classes < 1) {
    return Error{Code::kInvalidArgument, fmt::format("a network of {} classes", classes)};
  }
  if (backbone == "efficientnet-lite0") return make_lite0(classes, seed);
  if (backbone == "resnet-18") return make_resnet18(classes, seed);
  return Error{Code::kInvalidArgument,
               fmt::format("backbone '{}' is not known; there are efficientnet-lite0 and resnet-18",
                           backbone)};
}

Preprocess default_preprocess(std::string_view backbone, int size) {
  Preprocess spec;
  spec.width = size;
  spec.height = size;
  // The usual margin around the centre at 224; small pictures are used whole.
  spec.resize = size >= 128 ? size * 8 / 7 : size;
  if (backbone == "efficientnet-lite0") {
    spec.mean = {127.0F / 255.0F, 127.0F / 255.0F, 127.0F / 255.0F};
    spec.std = {128.0F / 255.0F, 128.0F / 255.0F, 128.0F / 255.0F};
  }
  return spec;
}

}  // namespace atelier::vision
