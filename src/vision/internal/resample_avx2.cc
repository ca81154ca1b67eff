#include "vision/internal/resample.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstring>

namespace atelier::vision {
namespace {

#define ATELIER_AVX2 __attribute__((target("avx2")))

// The sum of one output, to be added across the two halves: [r g b 0] of taps 0, 1, 4, 5, ... and
// of 2, 3, 6, 7, ... Four pixels a step: bytes r0 g0 b0 r1 ... become 16-bit pairs (r0 r1)(g0
// g1)(b0 b1)(0 0) and the same of pixels 2 and 3, so one multiply-add sums two taps of each colour;
// weights w0 w1 w2 w3 become (w0 w1) four times and (w2 w3) four times. kOneGroup: there are at
// most four taps, as in nearly all training sets.
template <bool kOneGroup>
ATELIER_AVX2 inline __m256i convolve_rgb(const std::uint8_t* from, const std::int16_t* weights,
                                         int taps) {
  const __m128i pairs = _mm_setr_epi8(0, 3, 1, 4, 2, 5, -1, -1, 6, 9, 7, 10, 8, 11, -1, -1);
  const __m256i high_order = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3,  //
                                              4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
  const __m256i low_order =
      _mm256_setr_epi8(8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11,  //
                       12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15);
  __m256i sum = _mm256_setzero_si256();
  for (int t = 0; t < (kOneGroup ? 1 : taps); t += kTapGroup) {
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 3 * t));
    const __m256i pixels = _mm256_cvtepu8_epi16(_mm_shuffle_epi8(raw, pairs));
    const __m256i group = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + 2 * t)));
    const __m256i high = _mm256_madd_epi16(pixels, _mm256_shuffle_epi8(group, high_order));
    const __m256i low = _mm256_madd_epi16(pixels, _mm256_shuffle_epi8(group, low_order));
    sum = _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_slli_epi32(high, 8), low));
  }
  return sum;
}

// Two outputs, one in each half, rounded.
ATELIER_AVX2 inline __m256i join_outputs(__m256i a, __m256i b) {
  const __m256i sum = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                                       _mm256_permute2x128_si256(a, b, 0x31));
  return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(kWeightHalf)), kWeightBits);
}

// Outputs that are read one after the other, from the first or (flipped) from the last.
template <bool kOneGroup>
struct Outputs {
  const std::uint8_t* row;  // where source 0 of the plan would be
  const std::int32_t* begin;
  const std::int16_t* weights;
  int taps;
  std::ptrdiff_t step;

  ATELIER_AVX2 inline __m256i next() {
    const __m256i sum = convolve_rgb<kOneGroup>(row + std::ptrdiff_t{*begin} * 3, weights, taps);
    begin += step;
    weights += step * 2 * (kOneGroup ? kTapGroup : taps);
    return sum;
  }
};

// Four outputs at a time, from left to right in `out`; a store of 16 bytes holds 12 of use, and the
// next one, or the slack behind the row, takes the rest.
template <bool kOneGroup>
ATELIER_AVX2 void horizontal_rgb(Outputs<kOneGroup> outputs, int count, std::uint8_t* out) {
  const __m128i compress = _mm_setr_epi8(0, 1, 2, 8, 9, 10, 4, 5, 6, 12, 13, 14, -1, -1, -1, -1);
  int x = 0;
  for (; x + 4 <= count; x += 4) {
    const __m256i a = outputs.next();
    const __m256i b = outputs.next();
    const __m256i c = outputs.next();
    const __m256i d = outputs.next();
    const __m256i words = _mm256_packs_epi32(join_outputs(a, b), join_outputs(c, d));  // a c | b d
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * x), _mm_shuffle_epi8(bytes, compress));
  }
  for (; x < count; ++x) {
    const __m128i one =
        _mm256_castsi256_si128(join_outputs(outputs.next(), _mm256_setzero_si256()));
    const __m128i words = _mm_packs_epi32(one, one);
    const std::int32_t pixel = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(out + 3 * x, &pixel, 3);
  }
}

template <bool kOneGroup>
Outputs<kOneGroup> outputs_of(const std::uint8_t* row, const AxisPlan& plan, int row_first,
                              int count, bool flip) {
  const std::size_t first = flip ? static_cast<std::size_t>(count) - 1 : 0;
  return {row - std::ptrdiff_t{row_first} * 3, &plan.begins[first], plan.weights_of(first),
          plan.taps, flip ? -1 : 1};
}

ATELIER_AVX2 void horizontal(const std::uint8_t* row, const AxisPlan& plan, int row_first,
                             int count, int channels, bool flip, std::uint8_t* out) {
  if (channels == 3) {
    if (plan.taps == kTapGroup) {
      horizontal_rgb(outputs_of<true>(row, plan, row_first, count, flip), count, out);
    } else {
      horizontal_rgb(outputs_of<false>(row, plan, row_first, count, flip), count, out);
    }
  } else {
    generic_kernel().horizontal(row, plan, row_first, count, channels, flip, out);
  }
}

struct Sums {
  __m256i left;   // of bytes 0-7
  __m256i right;  // of bytes 8-15
};

// Two neighbouring 16-bit halves, for every lane.
ATELIER_AVX2 inline __m256i spread_pair(const std::int16_t* weights) {
  std::int32_t pair;
  std::memcpy(&pair, weights, sizeof pair);
  return _mm256_set1_epi32(pair);
}

ATELIER_AVX2 inline __m256i join_halves(__m256i high, __m256i low) {
  return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, 8), low), kWeightBits);
}

// Sixteen neighbouring columns: bytes of two rows are interleaved, so one multiply-add sums two
// taps of a column.
ATELIER_AVX2 inline Sums column_sums(const std::uint8_t* rows, std::size_t stride,
                                     const std::int16_t* weights, int taps) {
  Sums high{_mm256_setzero_si256(), _mm256_setzero_si256()};
  Sums low{_mm256_set1_epi32(kWeightHalf), _mm256_set1_epi32(kWeightHalf)};
  for (int t = 0; t < taps; t += 2) {
    const std::uint8_t* first = rows + static_cast<std::size_t>(t) * stride;
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + stride));
    const __m256i left = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b));
    const __m256i right = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
    const std::int16_t* group = weights + t / kTapGroup * 2 * kTapGroup + t % kTapGroup;
    const __m256i high_pair = spread_pair(group);
    const __m256i low_pair = spread_pair(group + kTapGroup);
    high.left = _mm256_add_epi32(high.left, _mm256_madd_epi16(left, high_pair));
    high.right = _mm256_add_epi32(high.right, _mm256_madd_epi16(right, high_pair));
    low.left = _mm256_add_epi32(low.left, _mm256_madd_epi16(left, low_pair));
    low.right = _mm256_add_epi32(low.right, _mm256_madd_epi16(right, low_pair));
  }
  return {join_halves(high.left, low.left), join_halves(high.right, low.right)};
}

ATELIER_AVX2 inline __m256i clamp_byte(__m256i value) {
  return _mm256_min_epi32(_mm256_max_epi32(value, _mm256_setzero_si256()), _mm256_set1_epi32(255));
}

ATELIER_AVX2 void vertical(const std::uint8_t* rows, std::size_t stride,
                           const std::int16_t* weights, int taps, std::size_t bytes,
                           std::uint8_t* out) {
  for (std::size_t i = 0; i < bytes; i += 16) {
    const Sums sums = column_sums(rows + i, stride, weights, taps);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(sums.left, sums.right), 0xd8);
    const __m128i packed =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), packed);
  }
}

// Scale and bias repeat after `channels` values, vectors after 8: both after 24.
struct Pattern {
  __m256 scale[3];
  __m256 bias[3];
};
ATELIER_AVX2 inline Pattern make_pattern(int channels, const float* scale, const float* bias) {
  std::array<float, 24> scales{};
  std::array<float, 24> biases{};
  for (std::size_t i = 0; i < 24; ++i) {
    scales[i] = scale[i % static_cast<std::size_t>(channels)];
    biases[i] = bias[i % static_cast<std::size_t>(channels)];
  }
  Pattern pattern;
  for (std::size_t v = 0; v < 3; ++v) {
    pattern.scale[v] = _mm256_loadu_ps(&scales[8 * v]);
    pattern.bias[v] = _mm256_loadu_ps(&biases[8 * v]);
  }
  return pattern;
}

// Multiply, then add, without fusing: the generic kernel gives the same bits.
ATELIER_AVX2 inline __m256 normalise(__m256i sums, const Pattern& pattern, std::size_t phase) {
  const __m256 value = _mm256_cvtepi32_ps(clamp_byte(sums));
  return _mm256_add_ps(_mm256_mul_ps(value, pattern.scale[phase]), pattern.bias[phase]);
}

ATELIER_AVX2 void vertical_normalised(const std::uint8_t* rows, std::size_t stride,
                                      const std::int16_t* weights, int taps, std::size_t bytes,
                                      int channels, const float* scale, const float* bias,
                                      float* out) {
  const Pattern pattern = make_pattern(channels, scale, bias);
  std::size_t i = 0;
  for (; i + 48 <= bytes; i += 48) {
    const Sums a = column_sums(rows + i, stride, weights, taps);
    const Sums b = column_sums(rows + i + 16, stride, weights, taps);
    const Sums c = column_sums(rows + i + 32, stride, weights, taps);
    _mm256_storeu_ps(out + i, normalise(a.left, pattern, 0));
    _mm256_storeu_ps(out + i + 8, normalise(a.right, pattern, 1));
    _mm256_storeu_ps(out + i + 16, normalise(b.left, pattern, 2));
    _mm256_storeu_ps(out + i + 24, normalise(b.right, pattern, 0));
    _mm256_storeu_ps(out + i + 32, normalise(c.left, pattern, 1));
    _mm256_storeu_ps(out + i + 40, normalise(c.right, pattern, 2));
  }
  if (i == bytes) return;
  // The rest, through a buffer: `out` ends with its last value.
  alignas(32) std::array<float, 48> rest;
  for (std::size_t part = 0; part < 3; ++part) {
    const Sums sums = column_sums(rows + i + 16 * part, stride, weights, taps);
    _mm256_store_ps(&rest[16 * part], normalise(sums.left, pattern, (2 * part) % 3));
    _mm256_store_ps(&rest[16 * part + 8], normalise(sums.right, pattern, (2 * part + 1) % 3));
  }
  std::memcpy(out + i, rest.data(), (bytes - i) * sizeof(float));
}

}  // namespace

const ResampleKernel* avx2_kernel() {
  static constexpr ResampleKernel kKernel{horizontal, vertical, vertical_normalised, "avx2"};
  return __builtin_cpu_supports("avx2") ? &kKernel : nullptr;
}

}  // namespace atelier::vision

#else

namespace atelier::vision {
const ResampleKernel* avx2_kernel() { return nullptr; }
}  // namespace atelier::vision

#endif
