// Antialiased resizing, bit for bit as PIL does it (Pillow, src/libImaging/Resample.c): two passes
// of convolution, horizontal first, 8 bits between them, weights with 22 fractional bits. A weight
// is stored as two 16-bit halves, high * 256 + low, so that the processor's 16-bit multiply-add can
// take it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "vision/preprocess.h"

namespace atelier::vision {

inline constexpr int kWeightBits = 22;
inline constexpr std::int32_t kWeightHalf = 1 << (kWeightBits - 1);
// Taps are padded with zero weights to a multiple of this. A group is four high halves, then their
// low halves.
inline constexpr int kTapGroup = 4;

// The weight of tap `tap` in the groups at `weights`.
constexpr std::int32_t weight_of(const std::int16_t* weights, int tap) {
  const int at = tap / kTapGroup * 2 * kTapGroup + tap % kTapGroup;
  return weights[at] * 256 + weights[at + kTapGroup];
}

// How outputs first..first+count of an axis that scales `source` pixels to `scaled` are made:
// output i reads sources begins[i] .. begins[i] + taps, with weights[i * stride ...].
struct AxisPlan {
  std::span<const std::int32_t> begins;
  std::span<const std::int16_t> weights;
  int taps = 0;  // of each output, a multiple of kTapGroup
  [[nodiscard]] const std::int16_t* weights_of(std::size_t output) const {
    return weights.data() + output * 2 * static_cast<std::size_t>(taps);
  }
  int source_first = 0;  // the sources that any output reads
  int source_end = 0;
};
// Writes into `begins` and `weights`, which the plan points to.
AxisPlan plan_axis(Interpolation interpolation, int source, int scaled, int first, int count,
                   std::vector<std::int32_t>& begins, std::vector<std::int16_t>& weights);

// The arithmetic: `generic` and, where the processor has it, `avx2` give the same bits.
struct ResampleKernel {
  // `rows` rows, row_stride bytes apart, to rows of `count` outputs of `channels`, out_stride bytes
  // apart. The first pixel of a row is source `row_first` of the plan. Reads up to 16 bytes from
  // any pixel of a tap, so the last row must be readable for kRowSlack bytes and the padding of the
  // taps behind its end. Rows of `out` are written in order, and writable for kRowSlack bytes
  // behind their end. `flip` writes the outputs from right to left.
  void (*horizontal)(const std::uint8_t* row, std::size_t row_stride, int rows,
                     const AxisPlan& plan, int row_first, int count, int channels, bool flip,
                     std::uint8_t* out, std::size_t out_stride);
  // One output row of `bytes` values: the weighted sum of `taps` rows that are `stride` bytes
  // apart. The rows behind them up to a multiple of two
  // are read too, with weights of zero. Rows are readable, and `out` is writable, for kRowSlack
  // bytes behind the end.
  void (*vertical)(const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights,
                   int taps, std::size_t bytes, std::uint8_t* out);
  // The same, then value * scale[channel] + bias[channel] as float. `bytes` is a multiple of
  // `channels`.
  void (*vertical_normalised)(const std::uint8_t* rows, std::size_t stride,
                              const std::int16_t* weights, int taps, std::size_t bytes,
                              int channels, const float* scale, const float* bias, float* out);
  const char* name;
};
inline constexpr std::size_t kRowSlack = 64;

const ResampleKernel& generic_kernel();
// Null where the processor (or the build) lacks it.
const ResampleKernel* avx2_kernel();
// The best of this processor.
const ResampleKernel& best_kernel();

}  // namespace atelier::vision
