// The arithmetic of training that libtorch does slowly on processors: depthwise convolution and
// batch normalisation with its activation, on channels-last fp32. Plain functions over memory, free
// of libtorch; each handles a part of the work, so that the caller decides about threads.
//
// Why: at 48 px, half of EfficientNet-Lite0's training step in libtorch 1.13 and 2.13 goes into
// depthwise gradients and passes over memory that these fuse (docs/decisions/libtorch.md has
// figures).
#pragma once

#include <cstdint>

namespace atelier::vision {

// One depthwise convolution with a square kernel; weights are [kernel][kernel][channels].
struct DepthwiseShape {
  std::int64_t height, width, channels;  // of the input; channels is a multiple of 8
  std::int64_t kernel, stride;
  std::int64_t out_height, out_width;
  std::int64_t pad_top, pad_left;
};

// Pictures [first, last) of a batch; arrays are whole batches.
void depthwise_forward(const DepthwiseShape& shape, std::int64_t first, std::int64_t last,
                       const float* input, const float* weight, float* output);
void depthwise_backward_input(const DepthwiseShape& shape, std::int64_t first, std::int64_t last,
                              const float* grad_output, const float* weight, float* grad_input);
// Adds to `grad_weight`.
void depthwise_backward_weight(const DepthwiseShape& shape, std::int64_t first, std::int64_t last,
                               const float* input, const float* grad_output, float* grad_weight);

// An activation is a clamp: {0, 6} is ReLU6, {0, inf} is ReLU, {-inf, inf} is none.
struct Clamp {
  float low, high;
};

// Rows [first, last) of a [rows][channels] array: adds each channel's sum and sum of squares.
void channel_sums(std::int64_t channels, std::int64_t first, std::int64_t last, const float* input,
                  double* sum, double* sum_of_squares);

// output = clamp(input * scale + shift + residual); `residual` may be null.
void scale_shift_clamp(std::int64_t channels, std::int64_t first, std::int64_t last,
                       const float* input, const float* scale, const float* shift, Clamp clamp,
                       const float* residual, float* output);

// With g = grad_output where the clamp let the value through, else 0: adds sum(g) and sum(g *
// input). `residual` is what the forward pass added before the clamp, or null.
void clamp_backward_sums(std::int64_t channels, std::int64_t first, std::int64_t last,
                         const float* grad_output, const float* input, const float* scale,
                         const float* shift, Clamp clamp, const float* residual, double* sum_g,
                         double* sum_gx);

// grad_input = a * g + b * input + c, per channel; grad_residual = g when it is not null.
void clamp_backward_input(std::int64_t channels, std::int64_t first, std::int64_t last,
                          const float* grad_output, const float* input, const float* scale,
                          const float* shift, Clamp clamp, const float* residual, const float* a,
                          const float* b, const float* c, float* grad_input, float* grad_residual);

}  // namespace atelier::vision
