#include "vision/internal/resample.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstring>

namespace atelier::vision {
namespace {

#define ATELIER_AVX2 __attribute__((target("avx2")))

__attribute__((always_inline)) ATELIER_AVX2 inline __m256i two_halves(const void* low,
                                                                      const void* high) {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(low))),
      _mm_loadu_si128(static_cast<const __m128i*>(high)), 1);
}

// The weights of four taps of two outputs, one in each half. A group is two pairs of high halves,
// then the two pairs of low halves; each pair is spread over the colours.
struct PairWeights {
  __m256i high01;
  __m256i high23;
  __m256i low01;
  __m256i low23;
};
__attribute__((always_inline)) ATELIER_AVX2 inline PairWeights spread(__m256i groups) {
  return {_mm256_shuffle_epi32(groups, 0x00), _mm256_shuffle_epi32(groups, 0x55),
          _mm256_shuffle_epi32(groups, 0xaa), _mm256_shuffle_epi32(groups, 0xff)};
}

// Sums of two outputs, in each half [r g b 0].
struct PairSums {
  __m256i high;
  __m256i low;
};
// Bytes r0 g0 b0 r1 ... become 16-bit pairs (r0 r1)(g0 g1)(b0 b1)(0 0), so one multiply-add sums
// two taps of each colour.
__attribute__((always_inline)) ATELIER_AVX2 inline PairSums convolve(__m256i raw,
                                                                     const PairWeights& weights) {
  const __m256i order01 = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i order23 = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  const __m256i pixels01 = _mm256_shuffle_epi8(raw, order01);
  const __m256i pixels23 = _mm256_shuffle_epi8(raw, order23);
  return {_mm256_add_epi32(_mm256_madd_epi16(pixels01, weights.high01),
                           _mm256_madd_epi16(pixels23, weights.high23)),
          _mm256_add_epi32(_mm256_madd_epi16(pixels01, weights.low01),
                           _mm256_madd_epi16(pixels23, weights.low23))};
}
// Shifting the low part first loses nothing: the lowest 8 bits have no other summand.
__attribute__((always_inline)) ATELIER_AVX2 inline __m256i rounded(const PairSums& sums) {
  const __m256i low =
      _mm256_srai_epi32(_mm256_add_epi32(sums.low, _mm256_set1_epi32(kWeightHalf)), 8);
  return _mm256_srai_epi32(_mm256_add_epi32(sums.high, low), kWeightBits - 8);
}

constexpr int kBlock = 8;  // outputs that are written together

// kRows rows at once, so that they share the weights. kOneGroup: there are at most four taps, as in
// nearly all training sets.
template <int kRows>
struct RowBlock {
  const std::uint8_t* from[kRows];  // where source 0 of the plan would be
  std::uint8_t* to[kRows];
};

template <bool kOneGroup, int kRows>
__attribute__((always_inline)) ATELIER_AVX2 inline void convolve_pair(const RowBlock<kRows>& rows,
                                                                      const AxisPlan& plan,
                                                                      std::size_t output,
                                                                      __m256i* out) {
  const std::ptrdiff_t a = std::ptrdiff_t{plan.begins[output]} * 3;
  const std::ptrdiff_t b = std::ptrdiff_t{plan.begins[output + 1]} * 3;
  const std::int16_t* weights = plan.weights_of(output);
  if constexpr (kOneGroup) {
    const PairWeights spreaded =
        spread(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)));
    for (int r = 0; r < kRows; ++r) {
      out[r] = rounded(convolve(two_halves(rows.from[r] + a, rows.from[r] + b), spreaded));
    }
  } else {
    const std::int16_t* second = plan.weights_of(output + 1);
    PairSums sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int t = 0; t < plan.taps; t += kTapGroup) {
      const PairWeights spreaded = spread(two_halves(weights + 2 * t, second + 2 * t));
      for (int r = 0; r < kRows; ++r) {
        const PairSums part =
            convolve(two_halves(rows.from[r] + a + 3 * t, rows.from[r] + b + 3 * t), spreaded);
        sums[r].high = _mm256_add_epi32(sums[r].high, part.high);
        sums[r].low = _mm256_add_epi32(sums[r].low, part.low);
      }
    }
    for (int r = 0; r < kRows; ++r) out[r] = rounded(sums[r]);
  }
}

// Outputs first .. first + 8 to the pixels at x, perhaps from right to left. Two stores of 16 bytes
// with 12 of use each; the next block, or the slack behind the row, takes the rest.
template <bool kOneGroup, int kRows>
__attribute__((always_inline)) ATELIER_AVX2 inline void convolve_block(const RowBlock<kRows>& rows,
                                                                       const AxisPlan& plan,
                                                                       std::size_t first, int x,
                                                                       __m256i places,
                                                                       __m256i compress) {
  __m256i sums[4][kRows];
  for (std::size_t p = 0; p < 4; ++p)
    convolve_pair<kOneGroup, kRows>(rows, plan, first + 2 * p, sums[p]);
  for (int r = 0; r < kRows; ++r) {
    const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sums[0][r], sums[1][r]),
                                              _mm256_packs_epi32(sums[2][r], sums[3][r]));
    const __m256i pixels =
        _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(bytes, places), compress);
    std::uint8_t* to = rows.to[r] + 3 * x;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(pixels));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 12), _mm256_extracti128_si256(pixels, 1));
  }
}

template <bool kOneGroup, int kRows>
ATELIER_AVX2 void horizontal_rgb(const RowBlock<kRows>& rows, const AxisPlan& plan, int count,
                                 bool flip) {
  // Packing leaves outputs 0 2 4 6 | 1 3 5 7.
  const __m256i places =
      flip ? _mm256_setr_epi32(7, 3, 6, 2, 5, 1, 4, 0) : _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i compress = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const auto block_at = [&](int x) ATELIER_AVX2 {
    const auto first = static_cast<std::size_t>(flip ? count - kBlock - x : x);
    convolve_block<kOneGroup, kRows>(rows, plan, first, x, places, compress);
  };
  int x = 0;
  for (; x + kBlock <= count; x += kBlock) block_at(x);
  if (x < count) block_at(count - kBlock);  // some outputs a second time
}

ATELIER_AVX2 void horizontal(const std::uint8_t* row, std::size_t row_stride, int rows,
                             const AxisPlan& plan, int row_first, int count, int channels,
                             bool flip, std::uint8_t* out, std::size_t out_stride) {
  if (channels != 3 || count < kBlock) {
    generic_kernel().horizontal(row, row_stride, rows, plan, row_first, count, channels, flip, out,
                                out_stride);
    return;
  }
  const std::uint8_t* from = row - std::ptrdiff_t{row_first} * 3;
  const bool one_group = plan.taps == kTapGroup;
  int y = 0;
  for (; y + 2 <= rows; y += 2, from += 2 * row_stride, out += 2 * out_stride) {
    const RowBlock<2> two{{from, from + row_stride}, {out, out + out_stride}};
    one_group ? horizontal_rgb<true, 2>(two, plan, count, flip)
              : horizontal_rgb<false, 2>(two, plan, count, flip);
  }
  if (y == rows) return;
  const RowBlock<1> one{{from}, {out}};
  one_group ? horizontal_rgb<true, 1>(one, plan, count, flip)
            : horizontal_rgb<false, 1>(one, plan, count, flip);
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
__attribute__((always_inline)) ATELIER_AVX2 inline Sums column_sums(const std::uint8_t* rows,
                                                                    std::size_t stride,
                                                                    const std::int16_t* weights,
                                                                    int taps) {
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

// Rows that are summed for an output, with whole weights, as a training set has them: two to four.
// One multiplication of 32 bits for each instead of two multiply-adds of 16 bits for each pair
// needs no interleaving, and is a tenth faster where it is one operation (AMD since Zen 2).
template <int kTaps, bool kClamp>
struct FewRows {
  const std::uint8_t* rows;
  std::size_t stride;
  __m256i weights[kTaps];

  // Of eight neighbouring columns. Without negative weights no sum leaves a byte.
  __attribute__((always_inline)) ATELIER_AVX2 inline __m256i sums(std::size_t column) const {
    __m256i sum = _mm256_set1_epi32(kWeightHalf);
    for (std::size_t t = 0; t < kTaps; ++t) {
      const __m128i bytes =
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows + t * stride + column));
      sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(bytes), weights[t]));
    }
    sum = _mm256_srai_epi32(sum, kWeightBits);
    return kClamp ? clamp_byte(sum) : sum;
  }
};

template <int kTaps, bool kClamp>
ATELIER_AVX2 std::size_t normalise_few(const std::uint8_t* rows, std::size_t stride,
                                       const std::int16_t* weights, std::size_t bytes,
                                       const Pattern& pattern, float* out) {
  FewRows<kTaps, kClamp> few{rows, stride, {}};
  for (int t = 0; t < kTaps; ++t) few.weights[t] = _mm256_set1_epi32(weight_of(weights, t));
  std::size_t i = 0;
  for (; i + 24 <= bytes; i += 24) {
    for (std::size_t v = 0; v < 3; ++v) {
      const __m256 value = _mm256_cvtepi32_ps(few.sums(i + 8 * v));
      _mm256_storeu_ps(out + i + 8 * v,
                       _mm256_add_ps(_mm256_mul_ps(value, pattern.scale[v]), pattern.bias[v]));
    }
  }
  return i;
}

// Writes a multiple of 24 values and says how many; none where there are too many rows.
ATELIER_AVX2 std::size_t normalise_most(const std::uint8_t* rows, std::size_t stride,
                                        const std::int16_t* weights, int taps, std::size_t bytes,
                                        const Pattern& pattern, float* out) {
  bool clamp = false;
  for (int t = 0; t < taps; ++t) clamp = clamp || weight_of(weights, t) < 0;
  switch (clamp ? 0 : taps) {
    case 2:
      return normalise_few<2, false>(rows, stride, weights, bytes, pattern, out);
    case 3:
      return normalise_few<3, false>(rows, stride, weights, bytes, pattern, out);
    case 4:
      return normalise_few<4, false>(rows, stride, weights, bytes, pattern, out);
    default:
      return 0;
  }
}

ATELIER_AVX2 void vertical_normalised(const std::uint8_t* rows, std::size_t stride,
                                      const std::int16_t* weights, int taps, std::size_t bytes,
                                      int channels, const float* scale, const float* bias,
                                      float* out) {
  const Pattern pattern = make_pattern(channels, scale, bias);
  std::size_t i = normalise_most(rows, stride, weights, taps, bytes, pattern, out);
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
