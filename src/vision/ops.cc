#include "vision/ops.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/error.h"

namespace atelier::vision {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Sums are cut into this many parts whatever the number of threads, and added in order, so that the
// threads of a host cannot change a result.
constexpr std::int64_t kSumParts = 16;

at::Tensor channels_last(const at::Tensor& tensor) {
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor empty_channels_last(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options(), at::MemoryFormat::ChannelsLast);
}

// [channels, 1, k, k] <-> [k, k, channels].
at::Tensor to_kernel_major(const at::Tensor& weight) {
  return weight.squeeze(1).permute({1, 2, 0}).contiguous();
}
at::Tensor from_kernel_major(const at::Tensor& weight) {
  return weight.permute({2, 0, 1}).unsqueeze(1).contiguous();
}

DepthwiseShape shape_of(const at::Tensor& input, std::int64_t kernel, std::int64_t stride) {
  const SamePadding rows = same_padding(input.size(2), kernel, stride);
  const SamePadding columns = same_padding(input.size(3), kernel, stride);
  return {input.size(2), input.size(3),    input.size(1), kernel,        stride,
          rows.out_size, columns.out_size, rows.before,   columns.before};
}

// Calls work(part, first, last) for kSumParts slices of [0, count), on libtorch's threads.
void for_parts(std::int64_t count,
               const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& work) {
  at::parallel_for(0, kSumParts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      work(part, count * part / kSumParts, count * (part + 1) / kSumParts);
    }
  });
}

class DepthwiseConv : public torch::autograd::Function<DepthwiseConv> {
 public:
  static Variable forward(AutogradContext* context, const Variable& input_any,
                          const Variable& weight, std::int64_t stride) {
    const at::Tensor input = channels_last(input_any);
    const at::Tensor kernel_major = to_kernel_major(weight);
    const DepthwiseShape shape = shape_of(input, weight.size(2), stride);
    ATELIER_CHECK(shape.channels % 8 == 0, "depthwise channels must be a multiple of 8");
    at::Tensor output = empty_channels_last(
        {input.size(0), shape.channels, shape.out_height, shape.out_width}, input);
    const float* x = input.data_ptr<float>();
    const float* w = kernel_major.data_ptr<float>();
    float* y = output.data_ptr<float>();
    at::parallel_for(0, input.size(0), 1, [&](std::int64_t first, std::int64_t last) {
      depthwise_forward(shape, first, last, x, w, y);
    });
    context->save_for_backward({input, kernel_major});
    context->saved_data["stride"] = stride;
    return output;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& kernel_major = saved[1];
    const at::Tensor grad = channels_last(grads[0]);
    const DepthwiseShape shape =
        shape_of(input, kernel_major.size(0), context->saved_data["stride"].toInt());
    at::Tensor grad_input;
    if (context->needs_input_grad(0)) {
      grad_input = empty_channels_last(input.sizes(), input);
      at::parallel_for(0, input.size(0), 1, [&](std::int64_t first, std::int64_t last) {
        depthwise_backward_input(shape, first, last, grad.data_ptr<float>(),
                                 kernel_major.data_ptr<float>(), grad_input.data_ptr<float>());
      });
    }
    at::Tensor parts =
        at::zeros({kSumParts, shape.kernel, shape.kernel, shape.channels}, input.options());
    const std::int64_t part_size = shape.kernel * shape.kernel * shape.channels;
    for_parts(input.size(0), [&](std::int64_t part, std::int64_t first, std::int64_t last) {
      depthwise_backward_weight(shape, first, last, input.data_ptr<float>(), grad.data_ptr<float>(),
                                parts.data_ptr<float>() + part * part_size);
    });
    return {grad_input, from_kernel_major(parts.sum(0)), Variable()};
  }
};

// Per-channel sums that `work` adds to, over all rows: two rows of doubles.
struct ChannelSums {
  std::vector<double> first, second;
};
ChannelSums sum_channels(
    std::int64_t channels, std::int64_t rows,
    const std::function<void(std::int64_t, std::int64_t, double*, double*)>& work) {
  const auto width = static_cast<std::size_t>(channels);
  std::vector<double> parts(2 * width * kSumParts);
  for_parts(rows, [&](std::int64_t part, std::int64_t first, std::int64_t last) {
    double* sums = parts.data() + 2 * static_cast<std::size_t>(part) * width;
    work(first, last, sums, sums + width);
  });
  ChannelSums total{std::vector<double>(width), std::vector<double>(width)};
  for (std::size_t part = 0; part < kSumParts; ++part) {
    for (std::size_t c = 0; c < width; ++c) {
      total.first[c] += parts[2 * part * width + c];
      total.second[c] += parts[(2 * part + 1) * width + c];
    }
  }
  return total;
}

constexpr std::int64_t kRowsPerTask = 64;

// Mean and 1 / sqrt(variance + epsilon) of each channel, from the batch or from the running
// statistics.
struct Statistics {
  std::vector<double> mean, inverse_deviation;
};

Statistics batch_statistics(const at::Tensor& input, const NormState& norm) {
  const std::int64_t channels = input.size(1);
  const std::int64_t rows = input.numel() / channels;
  const float* x = input.data_ptr<float>();
  const ChannelSums sums = sum_channels(
      channels, rows, [&](std::int64_t first, std::int64_t last, double* s, double* q) {
        channel_sums(channels, first, last, x, s, q);
      });
  Statistics result;
  float* running_mean = norm.running_mean.data_ptr<float>();
  float* running_var = norm.running_var.data_ptr<float>();
  const auto count = static_cast<double>(rows);
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    const double mean = sums.first[c] / count;
    const double variance = std::max(0.0, sums.second[c] / count - mean * mean);
    result.mean.push_back(mean);
    result.inverse_deviation.push_back(1.0 / std::sqrt(variance + norm.epsilon));
    // The running variance is the unbiased one, as in every framework.
    const double unbiased = rows > 1 ? variance * count / (count - 1) : variance;
    running_mean[c] = static_cast<float>(
        (1 - norm.momentum) * static_cast<double>(running_mean[c]) + norm.momentum * mean);
    running_var[c] = static_cast<float>((1 - norm.momentum) * static_cast<double>(running_var[c]) +
                                        norm.momentum * unbiased);
  }
  return result;
}

Statistics running_statistics(const NormState& norm) {
  Statistics result;
  const float* mean = norm.running_mean.data_ptr<float>();
  const float* variance = norm.running_var.data_ptr<float>();
  for (std::int64_t c = 0; c < norm.running_mean.numel(); ++c) {
    result.mean.push_back(static_cast<double>(mean[c]));
    result.inverse_deviation.push_back(1.0 /
                                       std::sqrt(static_cast<double>(variance[c]) + norm.epsilon));
  }
  return result;
}

class NormClamp : public torch::autograd::Function<NormClamp> {
 public:
  static Variable forward(AutogradContext* context, const Variable& input_any,
                          const Variable& weight, const Variable& bias,
                          const Variable& residual_any, bool has_residual, const NormState& norm,
                          Clamp clamp) {
    const at::Tensor input = channels_last(input_any);
    const at::Tensor residual = has_residual ? channels_last(residual_any) : at::Tensor();
    const std::int64_t channels = input.size(1);
    const std::int64_t rows = input.numel() / channels;
    const Statistics statistics =
        norm.use_batch_statistics ? batch_statistics(input, norm) : running_statistics(norm);
    // Rows: scale, shift, mean, inverse deviation.
    at::Tensor folded = at::empty({4, channels}, input.options());
    float* scale = folded.data_ptr<float>();
    for (std::int64_t c = 0; c < channels; ++c) {
      const double mean = statistics.mean[static_cast<std::size_t>(c)];
      const double inverse = statistics.inverse_deviation[static_cast<std::size_t>(c)];
      const double gain = static_cast<double>(weight.data_ptr<float>()[c]) * inverse;
      scale[c] = static_cast<float>(gain);
      scale[channels + c] =
          static_cast<float>(static_cast<double>(bias.data_ptr<float>()[c]) - mean * gain);
      scale[2 * channels + c] = static_cast<float>(mean);
      scale[3 * channels + c] = static_cast<float>(inverse);
    }
    at::Tensor output = empty_channels_last(input.sizes(), input);
    const float* r = residual.defined() ? residual.data_ptr<float>() : nullptr;
    at::parallel_for(0, rows, kRowsPerTask, [&](std::int64_t first, std::int64_t last) {
      scale_shift_clamp(channels, first, last, input.data_ptr<float>(), scale, scale + channels,
                        clamp, r, output.data_ptr<float>());
    });
    const bool clamps = std::isfinite(clamp.low) || std::isfinite(clamp.high);
    // Without a clamp the residual does not matter to the gradient: nothing is kept of it.
    context->save_for_backward({input, folded, weight, clamps ? residual : at::Tensor()});
    context->saved_data["low"] = static_cast<double>(clamp.low);
    context->saved_data["high"] = static_cast<double>(clamp.high);
    context->saved_data["batch"] = norm.use_batch_statistics;
    context->saved_data["residual"] = residual.defined();
    return output;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[2];
    const at::Tensor& residual = saved[3];
    const at::Tensor grad = channels_last(grads[0]);
    const Clamp clamp{static_cast<float>(context->saved_data["low"].toDouble()),
                      static_cast<float>(context->saved_data["high"].toDouble())};
    const std::int64_t channels = input.size(1);
    const std::int64_t rows = input.numel() / channels;
    const float* x = input.data_ptr<float>();
    const float* dy = grad.data_ptr<float>();
    const float* scale = saved[1].data_ptr<float>();
    const float* shift = scale + channels;
    const float* r = residual.defined() ? residual.data_ptr<float>() : nullptr;
    const ChannelSums sums = sum_channels(
        channels, rows, [&](std::int64_t first, std::int64_t last, double* g, double* gx) {
          clamp_backward_sums(channels, first, last, dy, x, scale, shift, clamp, r, g, gx);
        });
    at::Tensor grad_weight = at::empty({channels}, weight.options());
    at::Tensor grad_bias = at::empty({channels}, weight.options());
    at::Tensor factors = at::empty({3, channels}, input.options());
    gradient_factors(saved[1], sums, rows, context->saved_data["batch"].toBool(), grad_weight,
                     grad_bias, factors);
    at::Tensor grad_input = empty_channels_last(input.sizes(), input);
    at::Tensor grad_residual;
    if (context->saved_data["residual"].toBool()) {
      grad_residual = r != nullptr ? empty_channels_last(input.sizes(), input) : grad;
    }
    float* dr = r != nullptr ? grad_residual.data_ptr<float>() : nullptr;
    const float* a = factors.data_ptr<float>();
    at::parallel_for(0, rows, kRowsPerTask, [&](std::int64_t first, std::int64_t last) {
      clamp_backward_input(channels, first, last, dy, x, scale, shift, clamp, r, a, a + channels,
                           a + 2 * channels, grad_input.data_ptr<float>(), dr);
    });
    return {grad_input, grad_weight, grad_bias, grad_residual, Variable(), Variable(), Variable()};
  }

 private:
  // With n rows, mean m, inverse deviation i, s = weight * i, and batch statistics:
  //   grad_input = s * (g - sum_g / n - (x - m) * i^2 * sum(g (x - m)) / n), written as a g + b x +
  //   c.
  static void gradient_factors(const at::Tensor& folded, const ChannelSums& sums, std::int64_t rows,
                               bool batch, at::Tensor& grad_weight, at::Tensor& grad_bias,
                               at::Tensor& factors) {
    const std::int64_t channels = grad_weight.numel();
    const float* scale = folded.data_ptr<float>();
    float* a = factors.data_ptr<float>();
    const auto count = static_cast<double>(rows);
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto index = static_cast<std::size_t>(c);
      const auto gain = static_cast<double>(scale[c]);
      const auto mean = static_cast<double>(scale[2 * channels + c]);
      const auto inverse = static_cast<double>(scale[3 * channels + c]);
      const double centred = sums.second[index] - mean * sums.first[index];
      grad_weight.data_ptr<float>()[c] = static_cast<float>(centred * inverse);
      grad_bias.data_ptr<float>()[c] = static_cast<float>(sums.first[index]);
      const double slope = batch ? -gain * inverse * inverse * centred / count : 0.0;
      const double constant = batch ? -gain * sums.first[index] / count - slope * mean : 0.0;
      a[c] = scale[c];
      a[channels + c] = static_cast<float>(slope);
      a[2 * channels + c] = static_cast<float>(constant);
    }
  }
};

}  // namespace

SamePadding same_padding(std::int64_t size, std::int64_t kernel, std::int64_t stride) {
  const std::int64_t out_size = (size + stride - 1) / stride;
  const std::int64_t total = std::max<std::int64_t>(0, (out_size - 1) * stride + kernel - size);
  return {total / 2, total - total / 2, out_size};
}

at::Tensor depthwise_conv(const at::Tensor& input, const at::Tensor& weight, std::int64_t stride) {
  return DepthwiseConv::apply(input, weight, stride);
}

at::Tensor norm_clamp(const at::Tensor& input, const NormState& norm, Clamp clamp,
                      const at::Tensor& residual) {
  // Autograd takes no undefined tensors: without a residual the input stands in, and gets no
  // gradient.
  return NormClamp::apply(input, norm.weight, norm.bias, residual.defined() ? residual : input,
                          residual.defined(), norm, clamp);
}

}  // namespace atelier::vision
