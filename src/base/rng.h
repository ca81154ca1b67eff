// Random numbers by counter: the same (seed, stream, index) gives the same number, whatever the
// order in which threads ask. SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable
// pseudorandom number generators", OOPSLA 2014) over the three words.
#pragma once

#include <cstdint>

namespace atelier {

constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr std::uint64_t rng(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return mix64(mix64(mix64(seed) ^ stream) ^ index);
}

// In [0, 1), with 53 random bits.
constexpr double rng_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return static_cast<double>(rng(seed, stream, index) >> 11) * 0x1.0p-53;
}

}  // namespace atelier
