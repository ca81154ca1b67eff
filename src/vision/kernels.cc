#include "vision/kernels.h"

#include <algorithm>
#include <array>
#include <vector>

#include "vision/clones.h"

namespace atelier::vision {
namespace {

// Eight floats; the compiler splits it where registers are narrower. Unaligned, and may alias
// float.
typedef float Vec __attribute__((vector_size(32), aligned(4), may_alias));
constexpr std::int64_t kLanes = 8;

ATELIER_INLINE Vec& at(float* p) { return *reinterpret_cast<Vec*>(p); }
ATELIER_INLINE const Vec& at(const float* p) { return *reinterpret_cast<const Vec*>(p); }

// Taps k of a kernel for which position * stride - pad + k lies inside [0, size).
struct Taps {
  std::int64_t first, last;
};
ATELIER_INLINE Taps taps_inside(std::int64_t position, std::int64_t stride, std::int64_t pad,
                                std::int64_t kernel, std::int64_t size) {
  const std::int64_t start = position * stride - pad;
  return {std::max<std::int64_t>(0, -start), std::min(kernel, size - start)};
}

// One output pixel, `Blocks` * 8 channels of it.
template <int Blocks>
ATELIER_INLINE void forward_pixel(const DepthwiseShape& s, const float* picture,
                                  const float* weight, Taps rows, Taps columns, std::int64_t top,
                                  std::int64_t left, std::int64_t channel, float* output) {
  Vec sums[Blocks] = {};
  for (std::int64_t kh = rows.first; kh < rows.last; ++kh) {
    const float* x = picture + ((top + kh) * s.width + left + columns.first) * s.channels + channel;
    const float* w = weight + (kh * s.kernel + columns.first) * s.channels + channel;
    for (std::int64_t kw = columns.first; kw < columns.last; ++kw) {
      for (int b = 0; b < Blocks; ++b) sums[b] += at(x + b * kLanes) * at(w + b * kLanes);
      x += s.channels;
      w += s.channels;
    }
  }
  for (int b = 0; b < Blocks; ++b) at(output + channel + b * kLanes) = sums[b];
}

// One input pixel's gradient: gathers from the output pixels that it reached.
template <int Blocks>
ATELIER_INLINE void backward_pixel(const DepthwiseShape& s, const float* picture_grad,
                                   const float* weight, std::int64_t ih, std::int64_t iw,
                                   std::int64_t channel, float* grad_input) {
  Vec sums[Blocks] = {};
  const std::int64_t kh_start = (ih + s.pad_top) % s.stride;
  const std::int64_t kw_start = (iw + s.pad_left) % s.stride;
  for (std::int64_t kh = kh_start; kh < s.kernel; kh += s.stride) {
    const std::int64_t oh = (ih + s.pad_top - kh) / s.stride;
    if (ih + s.pad_top < kh) break;
    if (oh >= s.out_height) continue;
    for (std::int64_t kw = kw_start; kw < s.kernel; kw += s.stride) {
      const std::int64_t ow = (iw + s.pad_left - kw) / s.stride;
      if (iw + s.pad_left < kw) break;
      if (ow >= s.out_width) continue;
      const float* g = picture_grad + (oh * s.out_width + ow) * s.channels + channel;
      const float* w = weight + (kh * s.kernel + kw) * s.channels + channel;
      for (int b = 0; b < Blocks; ++b) sums[b] += at(g + b * kLanes) * at(w + b * kLanes);
    }
  }
  for (int b = 0; b < Blocks; ++b) at(grad_input + channel + b * kLanes) = sums[b];
}

// Output positions for which tap k reads inside the input.
ATELIER_INLINE Taps outputs_inside(std::int64_t k, std::int64_t stride, std::int64_t pad,
                                   std::int64_t size, std::int64_t out_size) {
  const std::int64_t first = k >= pad ? 0 : (pad - k + stride - 1) / stride;
  const std::int64_t last = size - 1 + pad - k < 0 ? 0 : (size - 1 + pad - k) / stride + 1;
  return {first, std::min(last, out_size)};
}

template <int Blocks>
ATELIER_INLINE void weight_block(const DepthwiseShape& s, const float* picture, const float* grad,
                                 std::int64_t channel, float* grad_weight) {
  for (std::int64_t kh = 0; kh < s.kernel; ++kh) {
    const Taps rows = outputs_inside(kh, s.stride, s.pad_top, s.height, s.out_height);
    for (std::int64_t kw = 0; kw < s.kernel; ++kw) {
      const Taps columns = outputs_inside(kw, s.stride, s.pad_left, s.width, s.out_width);
      if (rows.first >= rows.last || columns.first >= columns.last) continue;
      Vec sums[Blocks] = {};
      for (std::int64_t oh = rows.first; oh < rows.last; ++oh) {
        const std::int64_t ih = oh * s.stride - s.pad_top + kh;
        const std::int64_t iw = columns.first * s.stride - s.pad_left + kw;
        const float* x = picture + (ih * s.width + iw) * s.channels + channel;
        const float* g = grad + (oh * s.out_width + columns.first) * s.channels + channel;
        for (std::int64_t ow = columns.first; ow < columns.last; ++ow) {
          for (int b = 0; b < Blocks; ++b) sums[b] += at(x + b * kLanes) * at(g + b * kLanes);
          x += s.stride * s.channels;
          g += s.channels;
        }
      }
      float* w = grad_weight + (kh * s.kernel + kw) * s.channels + channel;
      for (int b = 0; b < Blocks; ++b) at(w + b * kLanes) += sums[b];
    }
  }
}

// Rows that are summed in fp32 before they join the double sums: keeps the error of a mean small.
constexpr std::int64_t kRowsPerPartialSum = 128;

}  // namespace

ATELIER_CLONES void depthwise_forward(const DepthwiseShape& s, std::int64_t first,
                                      std::int64_t last, const float* input, const float* weight,
                                      float* output) {
  const std::int64_t in_size = s.height * s.width * s.channels;
  const std::int64_t out_size = s.out_height * s.out_width * s.channels;
  for (std::int64_t n = first; n < last; ++n) {
    const float* picture = input + n * in_size;
    float* out = output + n * out_size;
    for (std::int64_t oh = 0; oh < s.out_height; ++oh) {
      const Taps rows = taps_inside(oh, s.stride, s.pad_top, s.kernel, s.height);
      for (std::int64_t ow = 0; ow < s.out_width; ++ow, out += s.channels) {
        const Taps columns = taps_inside(ow, s.stride, s.pad_left, s.kernel, s.width);
        const std::int64_t top = oh * s.stride - s.pad_top;
        const std::int64_t left = ow * s.stride - s.pad_left;
        std::int64_t c = 0;
        for (; c + 4 * kLanes <= s.channels; c += 4 * kLanes) {
          forward_pixel<4>(s, picture, weight, rows, columns, top, left, c, out);
        }
        for (; c < s.channels; c += kLanes) {
          forward_pixel<1>(s, picture, weight, rows, columns, top, left, c, out);
        }
      }
    }
  }
}

ATELIER_CLONES void depthwise_backward_input(const DepthwiseShape& s, std::int64_t first,
                                             std::int64_t last, const float* grad_output,
                                             const float* weight, float* grad_input) {
  const std::int64_t in_size = s.height * s.width * s.channels;
  const std::int64_t out_size = s.out_height * s.out_width * s.channels;
  for (std::int64_t n = first; n < last; ++n) {
    const float* grad = grad_output + n * out_size;
    float* out = grad_input + n * in_size;
    for (std::int64_t ih = 0; ih < s.height; ++ih) {
      for (std::int64_t iw = 0; iw < s.width; ++iw, out += s.channels) {
        std::int64_t c = 0;
        for (; c + 4 * kLanes <= s.channels; c += 4 * kLanes) {
          backward_pixel<4>(s, grad, weight, ih, iw, c, out);
        }
        for (; c < s.channels; c += kLanes) backward_pixel<1>(s, grad, weight, ih, iw, c, out);
      }
    }
  }
}

ATELIER_CLONES void depthwise_backward_weight(const DepthwiseShape& s, std::int64_t first,
                                              std::int64_t last, const float* input,
                                              const float* grad_output, float* grad_weight) {
  const std::int64_t in_size = s.height * s.width * s.channels;
  const std::int64_t out_size = s.out_height * s.out_width * s.channels;
  for (std::int64_t n = first; n < last; ++n) {
    const float* picture = input + n * in_size;
    const float* grad = grad_output + n * out_size;
    std::int64_t c = 0;
    for (; c + 4 * kLanes <= s.channels; c += 4 * kLanes) {
      weight_block<4>(s, picture, grad, c, grad_weight);
    }
    for (; c < s.channels; c += kLanes) weight_block<1>(s, picture, grad, c, grad_weight);
  }
}

ATELIER_CLONES void channel_sums(std::int64_t channels, std::int64_t first, std::int64_t last,
                                 const float* input, double* sum, double* sum_of_squares) {
  std::vector<float> partial(static_cast<std::size_t>(2 * channels));
  float* __restrict s1 = partial.data();
  float* __restrict s2 = s1 + channels;
  for (std::int64_t start = first; start < last; start += kRowsPerPartialSum) {
    const std::int64_t end = std::min(last, start + kRowsPerPartialSum);
    std::fill(partial.begin(), partial.end(), 0.0F);
    for (std::int64_t row = start; row < end; ++row) {
      const float* __restrict x = input + row * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        s1[c] += x[c];
        s2[c] += x[c] * x[c];
      }
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      sum[c] += static_cast<double>(s1[c]);
      sum_of_squares[c] += static_cast<double>(s2[c]);
    }
  }
}

ATELIER_CLONES void scale_shift_clamp(std::int64_t channels, std::int64_t first, std::int64_t last,
                                      const float* input, const float* scale, const float* shift,
                                      Clamp clamp, const float* residual, float* output) {
  const float low = clamp.low;
  const float high = clamp.high;
  for (std::int64_t row = first; row < last; ++row) {
    const float* __restrict x = input + row * channels;
    float* __restrict y = output + row * channels;
    if (residual == nullptr) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const float value = x[c] * scale[c] + shift[c];
        const float raised = value < low ? low : value;
        y[c] = raised > high ? high : raised;
      }
    } else {
      const float* __restrict r = residual + row * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const float value = x[c] * scale[c] + shift[c] + r[c];
        const float raised = value < low ? low : value;
        y[c] = raised > high ? high : raised;
      }
    }
  }
}

namespace {

// The gradient behind the clamp, for one channel value.
ATELIER_INLINE float through_clamp(float grad, float value, Clamp clamp) {
  return value > clamp.low && value < clamp.high ? grad : 0.0F;
}

}  // namespace

ATELIER_CLONES void clamp_backward_sums(std::int64_t channels, std::int64_t first,
                                        std::int64_t last, const float* grad_output,
                                        const float* input, const float* scale, const float* shift,
                                        Clamp clamp, const float* residual, double* sum_g,
                                        double* sum_gx) {
  std::vector<float> partial(static_cast<std::size_t>(2 * channels));
  float* __restrict s1 = partial.data();
  float* __restrict s2 = s1 + channels;
  for (std::int64_t start = first; start < last; start += kRowsPerPartialSum) {
    const std::int64_t end = std::min(last, start + kRowsPerPartialSum);
    std::fill(partial.begin(), partial.end(), 0.0F);
    for (std::int64_t row = start; row < end; ++row) {
      const float* __restrict x = input + row * channels;
      const float* __restrict dy = grad_output + row * channels;
      if (residual == nullptr) {
        for (std::int64_t c = 0; c < channels; ++c) {
          const float g = through_clamp(dy[c], x[c] * scale[c] + shift[c], clamp);
          s1[c] += g;
          s2[c] += g * x[c];
        }
      } else {
        const float* __restrict r = residual + row * channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          const float g = through_clamp(dy[c], x[c] * scale[c] + shift[c] + r[c], clamp);
          s1[c] += g;
          s2[c] += g * x[c];
        }
      }
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      sum_g[c] += static_cast<double>(s1[c]);
      sum_gx[c] += static_cast<double>(s2[c]);
    }
  }
}

ATELIER_CLONES void clamp_backward_input(std::int64_t channels, std::int64_t first,
                                         std::int64_t last, const float* grad_output,
                                         const float* input, const float* scale, const float* shift,
                                         Clamp clamp, const float* residual, const float* a,
                                         const float* b, const float* c0, float* grad_input,
                                         float* grad_residual) {
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t at_row = row * channels;
    const float* __restrict x = input + at_row;
    const float* __restrict dy = grad_output + at_row;
    float* __restrict dx = grad_input + at_row;
    if (residual == nullptr) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const float g = through_clamp(dy[c], x[c] * scale[c] + shift[c], clamp);
        dx[c] = a[c] * g + b[c] * x[c] + c0[c];
      }
    } else {
      const float* __restrict r = residual + at_row;
      float* __restrict dr = grad_residual + at_row;
      for (std::int64_t c = 0; c < channels; ++c) {
        const float g = through_clamp(dy[c], x[c] * scale[c] + shift[c] + r[c], clamp);
        dr[c] = g;
        dx[c] = a[c] * g + b[c] * x[c] + c0[c];
      }
    }
  }
}

}  // namespace atelier::vision
