#include "objects/checksum.h"

#include <fmt/format.h>

// Inlined: the library need not be there when the program runs.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace atelier::objects {
namespace {

// Polynomials with their bits reversed, as all three CRCs shift right.
constexpr std::uint64_t polynomial(ChecksumKind kind) {
  switch (kind) {
    case ChecksumKind::kCrc32:
      return 0xEDB88320U;
    case ChecksumKind::kCrc32c:
      return 0x82F63B78U;
    default:
      return 0x9A6C9329AC4BC9B5ULL;  // CRC-64/NVME: NVM Express, 64b CRC of the NVM command set
  }
}

constexpr std::uint64_t all_ones(ChecksumKind kind) {
  return kind == ChecksumKind::kCrc64Nvme ? ~std::uint64_t{0} : 0xFFFFFFFFU;
}

// Slicing by 16 (Kounavis, Berry: "Novel Table Lookup-Based Algorithms for High-Performance CRC
// Generation", 2008): table[k][b] is the CRC of byte b followed by k zero bytes.
using Tables = std::array<std::array<std::uint64_t, 256>, 16>;

Tables make_tables(std::uint64_t reversed_polynomial) {
  Tables tables;
  for (std::uint64_t byte = 0; byte < 256; ++byte) {
    std::uint64_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? reversed_polynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint64_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

const Tables& tables_of(ChecksumKind kind) {
  static const Tables crc32 = make_tables(polynomial(ChecksumKind::kCrc32));
  static const Tables crc32c = make_tables(polynomial(ChecksumKind::kCrc32c));
  static const Tables crc64 = make_tables(polynomial(ChecksumKind::kCrc64Nvme));
  if (kind == ChecksumKind::kCrc32) return crc32;
  return kind == ChecksumKind::kCrc32c ? crc32c : crc64;
}

std::uint64_t load64(const std::byte* at) {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap64(value);
  return value;
}

// A polynomial times x modulo the CRC's, in reversed bits.
std::uint64_t times_x(std::uint64_t value, std::uint64_t reversed_polynomial) {
  return (value >> 1) ^ ((value & 1) != 0 ? reversed_polynomial : 0);
}

// a times b modulo the CRC's polynomial; `top` is the bit that stands for x^0.
std::uint64_t multiply(std::uint64_t a, std::uint64_t b, std::uint64_t reversed_polynomial,
                       std::uint64_t top) {
  std::uint64_t product = 0;
  for (std::uint64_t bit = top; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = times_x(b, reversed_polynomial);
  }
  return product;
}

// The state of a CRC (before its last inversion) after bytes.
std::uint64_t by_tables(const Tables& t, std::uint64_t state, const std::byte* at,
                        std::size_t left) {
  for (; left >= 16; left -= 16, at += 16) {
    const std::uint64_t a = load64(at) ^ state;
    const std::uint64_t b = load64(at + 8);
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      next ^= t[15 - i][(a >> (8 * i)) & 0xFF] ^ t[7 - i][(b >> (8 * i)) & 0xFF];
    }
    state = next;
  }
  for (; left > 0; --left, ++at) {
    state = (state >> 8) ^ t[0][(state ^ static_cast<std::uint64_t>(*at)) & 0xFF];
  }
  return state;
}

#if defined(__x86_64__)
#define ATELIER_CLMUL __attribute__((target("pclmul,sse4.1")))

// What a block of 16 bytes is multiplied with to stand `bits` later: x^(bits + 63) for its first
// half, x^(bits - 1) for its second, modulo the CRC's polynomial, in reversed bits of 64. One less
// than the distance, as the product of two reversed factors lies one bit lower.
struct Fold {
  std::uint64_t first;
  std::uint64_t second;
};
Fold fold_by(ChecksumKind kind, int bits) {
  const bool wide = kind == ChecksumKind::kCrc64Nvme;
  const auto power = [&](int exponent) {
    std::uint64_t value = wide ? 1ULL << 63 : 1ULL << 31;
    for (int i = 0; i < exponent; ++i) value = times_x(value, polynomial(kind));
    return wide ? value : value << 32;
  };
  return {power(bits + 63), power(bits - 1)};
}
struct Folds {
  Fold four_blocks;
  Fold block;
};
const Folds& folds_of(ChecksumKind kind) {
  const auto make = [](ChecksumKind of) { return Folds{fold_by(of, 512), fold_by(of, 128)}; };
  static const Folds crc32 = make(ChecksumKind::kCrc32);
  static const Folds crc32c = make(ChecksumKind::kCrc32c);
  static const Folds crc64 = make(ChecksumKind::kCrc64Nvme);
  if (kind == ChecksumKind::kCrc32) return crc32;
  return kind == ChecksumKind::kCrc32c ? crc32c : crc64;
}

ATELIER_CLMUL inline __m128i load_block(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
ATELIER_CLMUL inline __m128i load_fold(const Fold& fold) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(&fold));
}
ATELIER_CLMUL inline __m128i folded(__m128i block, __m128i fold, __m128i next) {
  return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(block, fold, 0x00),
                                           _mm_clmulepi64_si128(block, fold, 0x11)));
}

constexpr std::size_t kLeastFolded = 128;

// The same by carry-less multiplication (Gopal et al.: "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ", Intel 2009): blocks are folded into one of 16 bytes with the same
// remainder, which the tables finish. At least 64 bytes.
ATELIER_CLMUL std::uint64_t by_folding(ChecksumKind kind, std::uint64_t state, const std::byte* at,
                                       std::size_t left) {
  const Folds& folds = folds_of(kind);
  const __m128i by_four = load_fold(folds.four_blocks);
  const __m128i by_one = load_fold(folds.block);
  __m128i a = _mm_xor_si128(load_block(at), _mm_cvtsi64_si128(static_cast<long long>(state)));
  __m128i b = load_block(at + 16);
  __m128i c = load_block(at + 32);
  __m128i d = load_block(at + 48);
  for (at += 64, left -= 64; left >= 64; at += 64, left -= 64) {
    a = folded(a, by_four, load_block(at));
    b = folded(b, by_four, load_block(at + 16));
    c = folded(c, by_four, load_block(at + 32));
    d = folded(d, by_four, load_block(at + 48));
  }
  a = folded(folded(folded(a, by_one, b), by_one, c), by_one, d);
  for (; left >= 16; at += 16, left -= 16) a = folded(a, by_one, load_block(at));
  std::array<std::byte, 16> block;
  std::memcpy(block.data(), &a, sizeof a);
  const Tables& tables = tables_of(kind);
  return by_tables(tables, by_tables(tables, 0, block.data(), block.size()), at, left);
}

bool can_fold() {
  static const bool can = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  return can;
}
#endif

std::string big_endian(ChecksumKind kind, std::uint64_t crc) {
  std::string raw(checksum_length(kind), '\0');
  for (std::size_t i = raw.size(); i-- > 0; crc >>= 8) raw[i] = static_cast<char>(crc & 0xFF);
  return raw;
}

std::uint64_t from_big_endian(std::string_view raw) {
  std::uint64_t value = 0;
  for (const char c : raw) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

}  // namespace

std::string_view checksum_name(ChecksumKind kind) {
  switch (kind) {
    case ChecksumKind::kCrc32:
      return "CRC32";
    case ChecksumKind::kCrc32c:
      return "CRC32C";
    case ChecksumKind::kCrc64Nvme:
      return "CRC64NVME";
    case ChecksumKind::kSha1:
      return "SHA1";
    case ChecksumKind::kSha256:
      return "SHA256";
    case ChecksumKind::kSha512:
      return "SHA512";
    case ChecksumKind::kMd5:
      return "MD5";
    case ChecksumKind::kXxhash64:
      return "XXHASH64";
    case ChecksumKind::kXxhash3:
      return "XXHASH3";
    case ChecksumKind::kXxhash128:
      return "XXHASH128";
  }
  return "";
}

std::optional<ChecksumKind> find_checksum_kind(std::string_view name) {
  for (const ChecksumKind kind : kChecksumKinds) {
    const std::string_view candidate = checksum_name(kind);
    if (candidate.size() == name.size() &&
        strncasecmp(candidate.data(), name.data(), name.size()) == 0) {
      return kind;
    }
  }
  return std::nullopt;
}

std::string checksum_header(ChecksumKind kind) {
  std::string name = "x-amz-checksum-" + std::string{checksum_name(kind)};
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::size_t checksum_length(ChecksumKind kind) {
  switch (kind) {
    case ChecksumKind::kCrc32:
    case ChecksumKind::kCrc32c:
      return 4;
    case ChecksumKind::kCrc64Nvme:
    case ChecksumKind::kXxhash64:
    case ChecksumKind::kXxhash3:
      return 8;
    case ChecksumKind::kMd5:
    case ChecksumKind::kXxhash128:
      return 16;
    case ChecksumKind::kSha1:
      return 20;
    case ChecksumKind::kSha256:
      return 32;
    case ChecksumKind::kSha512:
      return 64;
  }
  return 0;
}

std::uint64_t crc_update(ChecksumKind kind, std::uint64_t crc, std::span<const std::byte> bytes) {
  const std::uint64_t state = crc ^ all_ones(kind);
#if defined(__x86_64__)
  if (bytes.size() >= kLeastFolded && can_fold())
    return by_folding(kind, state, bytes.data(), bytes.size()) ^ all_ones(kind);
#endif
  return by_tables(tables_of(kind), state, bytes.data(), bytes.size()) ^ all_ones(kind);
}

std::uint64_t crc_update_portable(ChecksumKind kind, std::uint64_t crc,
                                  std::span<const std::byte> bytes) {
  return by_tables(tables_of(kind), crc ^ all_ones(kind), bytes.data(), bytes.size()) ^
         all_ones(kind);
}

std::uint64_t crc_combine(ChecksumKind kind, std::uint64_t a, std::uint64_t b,
                          std::uint64_t length_of_b) {
  const std::uint64_t p = polynomial(kind);
  const std::uint64_t top = kind == ChecksumKind::kCrc64Nvme ? 1ULL << 63 : 1ULL << 31;
  // a * x^(8 * length) + b: by squaring, as zlib's crc32_combine does.
  std::uint64_t power = top;  // x^0
  for (int i = 0; i < 8; ++i) power = times_x(power, p);
  std::uint64_t shift = top;
  for (; length_of_b != 0; length_of_b >>= 1) {
    if ((length_of_b & 1) != 0) shift = multiply(shift, power, p, top);
    power = multiply(power, power, p, top);
  }
  return multiply(shift, a, p, top) ^ b;
}

// The state of one of the xxHash family, which its library wants aligned.
struct Checksummer::Xxhash {
  XXH64_state_t classic;
  XXH3_state_t modern;
};

namespace {

template <typename Canonical>
std::string raw_of(const Canonical& canonical) {
  return {reinterpret_cast<const char*>(canonical.digest), sizeof canonical.digest};
}

}  // namespace

Checksummer::Checksummer(Checksummer&&) noexcept = default;
Checksummer::~Checksummer() = default;

Checksummer::Checksummer(ChecksumKind kind) : kind_(kind) {
  switch (kind) {
    case ChecksumKind::kSha1:
      hasher_.emplace(Digest::kSha1);
      break;
    case ChecksumKind::kSha256:
      hasher_.emplace(Digest::kSha256);
      break;
    case ChecksumKind::kSha512:
      hasher_.emplace(Digest::kSha512);
      break;
    case ChecksumKind::kMd5:
      hasher_.emplace(Digest::kMd5);
      break;
    case ChecksumKind::kXxhash64:
      xxhash_ = std::make_unique<Xxhash>();
      XXH64_reset(&xxhash_->classic, 0);
      break;
    case ChecksumKind::kXxhash3:
      xxhash_ = std::make_unique<Xxhash>();
      XXH3_64bits_reset(&xxhash_->modern);
      break;
    case ChecksumKind::kXxhash128:
      xxhash_ = std::make_unique<Xxhash>();
      XXH3_128bits_reset(&xxhash_->modern);
      break;
    default:
      break;
  }
}

void Checksummer::update(std::span<const std::byte> bytes) {
  if (hasher_) {
    hasher_->update(bytes);
  } else if (kind_ == ChecksumKind::kXxhash64) {
    XXH64_update(&xxhash_->classic, bytes.data(), bytes.size());
  } else if (kind_ == ChecksumKind::kXxhash3) {
    XXH3_64bits_update(&xxhash_->modern, bytes.data(), bytes.size());
  } else if (kind_ == ChecksumKind::kXxhash128) {
    XXH3_128bits_update(&xxhash_->modern, bytes.data(), bytes.size());
  } else {
    crc_ = crc_update(kind_, crc_, bytes);
  }
}

void Checksummer::update(std::string_view bytes) {
  update(std::as_bytes(std::span{bytes.data(), bytes.size()}));
}

std::string Checksummer::finish() {
  if (hasher_) return hasher_->finish();
  if (kind_ == ChecksumKind::kXxhash128) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&xxhash_->modern));
    return raw_of(canonical);
  }
  if (kind_ == ChecksumKind::kXxhash64) {
    return big_endian(kind_, XXH64_digest(&xxhash_->classic));
  }
  if (kind_ == ChecksumKind::kXxhash3) {
    return big_endian(kind_, XXH3_64bits_digest(&xxhash_->modern));
  }
  return big_endian(kind_, crc_);
}

std::string checksum_base64(ChecksumKind kind, std::string_view bytes) {
  Checksummer summer{kind};
  summer.update(bytes);
  return to_base64(summer.finish());
}

Result<Checksum> combine_checksums(ChecksumKind kind, bool composite,
                                   const std::vector<PartChecksum>& parts) {
  if (!composite && !is_crc(kind)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("InvalidRequest: {} has no checksum of the full object over parts",
                             checksum_name(kind))};
  }
  std::string raws;
  std::uint64_t crc = 0;
  for (const PartChecksum& part : parts) {
    const std::string raw = TRY(from_base64(part.value));
    if (raw.size() != checksum_length(kind)) {
      return Error{Code::kInvalidArgument, fmt::format("InvalidPart: '{}' is not a {} value",
                                                       part.value, checksum_name(kind))};
    }
    if (composite) {
      raws += raw;
    } else {
      crc = crc_combine(kind, crc, from_big_endian(raw), part.size);
    }
  }
  if (!composite) return Checksum{kind, false, to_base64(big_endian(kind, crc))};
  return Checksum{kind, true, fmt::format("{}-{}", checksum_base64(kind, raws), parts.size())};
}

}  // namespace atelier::objects
