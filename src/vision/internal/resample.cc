#include "vision/internal/resample.h"

#include <algorithm>
#include <cmath>

namespace atelier::vision {
namespace {

double bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// Keys' cubic with a = -0.5, as PIL has it.
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

// As PIL rounds them.
void round_weights(std::span<const double> exact, std::int16_t* groups) {
  for (std::size_t t = 0; t < exact.size(); ++t) {
    const int weight =
        static_cast<int>(exact[t] * (1 << kWeightBits) + (exact[t] < 0 ? -0.5 : 0.5));
    const int high = (weight + 128) >> 8;
    const std::size_t at = t / kTapGroup * 2 * kTapGroup + t % kTapGroup;
    groups[at] = static_cast<std::int16_t>(high);
    groups[at + kTapGroup] = static_cast<std::int16_t>(weight - high * 256);
  }
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp((sum + kWeightHalf) >> kWeightBits, 0, 255));
}

void horizontal_row(const std::uint8_t* row, const AxisPlan& plan, int row_first, int count,
                    int channels, bool flip, std::uint8_t* out) {
  for (int i = 0; i < count; ++i) {
    const auto output = static_cast<std::size_t>(i);
    const std::int16_t* weights = plan.weights_of(output);
    const std::uint8_t* from =
        row + static_cast<std::ptrdiff_t>(plan.begins[output] - row_first) * channels;
    std::uint8_t* to = out + static_cast<std::ptrdiff_t>(flip ? count - 1 - i : i) * channels;
    for (int c = 0; c < channels; ++c) {
      std::int32_t sum = 0;
      for (int t = 0; t < plan.taps; ++t) sum += weight_of(weights, t) * from[t * channels + c];
      to[c] = to_byte(sum);
    }
  }
}

void horizontal(const std::uint8_t* row, std::size_t row_stride, int rows, const AxisPlan& plan,
                int row_first, int count, int channels, bool flip, std::uint8_t* out,
                std::size_t out_stride) {
  for (int y = 0; y < rows; ++y, row += row_stride, out += out_stride)
    horizontal_row(row, plan, row_first, count, channels, flip, out);
}

std::int32_t column_sum(const std::uint8_t* column, std::size_t stride, const std::int16_t* weights,
                        int taps) {
  std::int32_t sum = 0;
  for (int t = 0; t < taps; ++t)
    sum += weight_of(weights, t) * column[static_cast<std::size_t>(t) * stride];
  return sum;
}

void vertical(const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights, int taps,
              std::size_t bytes, std::uint8_t* out) {
  for (std::size_t i = 0; i < bytes; ++i)
    out[i] = to_byte(column_sum(rows + i, stride, weights, taps));
}

void vertical_normalised(const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights,
                         int taps, std::size_t bytes, int channels, const float* scale,
                         const float* bias, float* out) {
  for (std::size_t i = 0, c = 0; i < bytes;
       ++i, c = c + 1 == static_cast<std::size_t>(channels) ? 0 : c + 1) {
    const float value = static_cast<float>(to_byte(column_sum(rows + i, stride, weights, taps)));
    const float scaled = value * scale[c];
    out[i] = scaled + bias[c];
  }
}

}  // namespace

AxisPlan plan_axis(Interpolation interpolation, int source, int scaled, int first, int count,
                   std::vector<std::int32_t>& begins, std::vector<std::int16_t>& weights) {
  const bool cubic = interpolation == Interpolation::kBicubic;
  const double scale = static_cast<double>(source) / scaled;
  const double filter_scale = std::max(scale, 1.0);
  const double support = (cubic ? 2.0 : 1.0) * filter_scale;
  AxisPlan plan;
  // Where each output reads, as PIL rounds it, and how many sources at most.
  const auto begin_of = [&](int output) {
    return std::max(static_cast<int>((output + 0.5) * scale - support + 0.5), 0);
  };
  const auto end_of = [&](int output) {
    return std::min(static_cast<int>((output + 0.5) * scale + support + 0.5), source);
  };
  int most = 0;
  for (int i = first; i < first + count; ++i) most = std::max(most, end_of(i) - begin_of(i));
  plan.taps = (most + kTapGroup - 1) / kTapGroup * kTapGroup;
  begins.resize(static_cast<std::size_t>(count));
  weights.assign(static_cast<std::size_t>(count) * 2 * static_cast<std::size_t>(plan.taps), 0);
  std::vector<double> exact(static_cast<std::size_t>(most));
  plan.source_first = source;
  for (int i = 0; i < count; ++i) {
    const double center = (first + i + 0.5) * scale;
    const int begin = begin_of(first + i);
    const int end = end_of(first + i);
    double sum = 0;
    for (int t = 0; t < end - begin; ++t) {
      const double at = (t + begin - center + 0.5) * (1.0 / filter_scale);
      sum += exact[static_cast<std::size_t>(t)] = cubic ? bicubic(at) : bilinear(at);
    }
    const std::span<double> used(exact.data(), static_cast<std::size_t>(end - begin));
    for (double& weight : used) weight *= 1.0 / sum;  // not a division: PIL's bits
    begins[static_cast<std::size_t>(i)] = begin;
    round_weights(used, weights.data() +
                            static_cast<std::size_t>(i) * 2 * static_cast<std::size_t>(plan.taps));
    plan.source_first = std::min(plan.source_first, begin);
    plan.source_end = std::max(plan.source_end, end);
  }
  plan.begins = begins;
  plan.weights = weights;
  return plan;
}

const ResampleKernel& generic_kernel() {
  static constexpr ResampleKernel kKernel{horizontal, vertical, vertical_normalised, "generic"};
  return kKernel;
}

const ResampleKernel& best_kernel() {
  static const ResampleKernel& kernel =
      avx2_kernel() != nullptr ? *avx2_kernel() : generic_kernel();
  return kernel;
}

}  // namespace atelier::vision
