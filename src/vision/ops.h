// Differentiable operations on channels-last fp32 batches, over the kernels of kernels.h, for
// libtorch's autograd. Same results as ATen's to rounding (ops_test.cc), two to four times less
// processor time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "vision/kernels.h"

namespace atelier::vision {

// TensorFlow's SAME padding: the output is ceil(size / stride); an odd amount has its extra row at
// the bottom and right.
struct SamePadding {
  std::int64_t before, after, out_size;
};
SamePadding same_padding(std::int64_t size, std::int64_t kernel, std::int64_t stride);

// Depthwise convolution with SAME padding. `weight` is [channels, 1, kernel, kernel], as
// checkpoints have it; channels must be a multiple of 8.
at::Tensor depthwise_conv(const at::Tensor& input, const at::Tensor& weight, std::int64_t stride);

// A batch normalisation's tensors and constants.
struct NormState {
  at::Tensor weight, bias;               // trained
  at::Tensor running_mean, running_var;  // updated when `use_batch_statistics`
  double epsilon = 1e-5;
  double momentum = 0.1;
  bool use_batch_statistics =
      false;  // training; otherwise the running ones, and they stay bit-equal
};

// clamp(batch_norm(input) + residual); `residual` may be undefined.
at::Tensor norm_clamp(const at::Tensor& input, const NormState& norm, Clamp clamp,
                      const at::Tensor& residual);

}  // namespace atelier::vision
