// The checksums that S3 clients send and ask for, computed as bytes pass, and combined over the
// parts of a multipart upload.
//
// Source: "Checking object integrity" of the Amazon S3 User Guide, and the service model of
// botocore 1.44 for the newer five. CRCs and xxHashes travel big-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace atelier::objects {

enum class ChecksumKind {
  kCrc32,
  kCrc32c,
  kCrc64Nvme,
  kSha1,
  kSha256,
  kSha512,
  kMd5,
  kXxhash64,
  kXxhash3,  // of 64 bits
  kXxhash128
};

// "CRC32", "CRC32C", "SHA256", "XXHASH3" ...; the header is "x-amz-checksum-" in lower case.
std::string_view checksum_name(ChecksumKind kind);
std::optional<ChecksumKind> find_checksum_kind(std::string_view name);
std::string checksum_header(ChecksumKind kind);
inline constexpr ChecksumKind kChecksumKinds[] = {
    ChecksumKind::kCrc32,    ChecksumKind::kCrc32c,   ChecksumKind::kCrc64Nvme,
    ChecksumKind::kSha1,     ChecksumKind::kSha256,   ChecksumKind::kSha512,
    ChecksumKind::kMd5,      ChecksumKind::kXxhash64, ChecksumKind::kXxhash3,
    ChecksumKind::kXxhash128};
constexpr bool is_crc(ChecksumKind kind) {
  return kind == ChecksumKind::kCrc32 || kind == ChecksumKind::kCrc32c ||
         kind == ChecksumKind::kCrc64Nvme;
}
// Bytes of the raw value.
std::size_t checksum_length(ChecksumKind kind);

// A checksum as S3 keeps it: of the whole object, or of the parts' checksums ("composite", whose
// value ends in "-<parts>").
struct Checksum {
  ChecksumKind kind = ChecksumKind::kCrc64Nvme;
  bool composite = false;
  std::string value;  // base64

  friend bool operator==(const Checksum&, const Checksum&) = default;
};

// A checksum in the making.
class Checksummer {
 public:
  explicit Checksummer(ChecksumKind kind);
  Checksummer(Checksummer&&) noexcept;
  Checksummer& operator=(Checksummer&&) = delete;
  ~Checksummer();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view bytes);
  [[nodiscard]] ChecksumKind kind() const { return kind_; }
  // The raw value; the checksummer is spent after it.
  [[nodiscard]] std::string finish();

 private:
  ChecksumKind kind_;
  std::uint64_t crc_ = 0;
  std::optional<Hasher> hasher_;
  struct Xxhash;
  std::unique_ptr<Xxhash> xxhash_;
};

std::string checksum_base64(ChecksumKind kind, std::string_view bytes);

// The running CRC after `bytes`, starting from 0: crc_update(kind, crc_update(kind, 0, a), b) is
// the CRC of a followed by b.
std::uint64_t crc_update(ChecksumKind kind, std::uint64_t crc, std::span<const std::byte> bytes);
// The same without the processor's carry-less multiplication, which crc_update takes where there is
// one. For tests and comparison.
std::uint64_t crc_update_portable(ChecksumKind kind, std::uint64_t crc,
                                  std::span<const std::byte> bytes);

// The CRC of a followed by b, from the CRCs of both and the length of b (zlib's crc32_combine for
// any of the three polynomials).
std::uint64_t crc_combine(ChecksumKind kind, std::uint64_t a, std::uint64_t b,
                          std::uint64_t length_of_b);

struct PartChecksum {
  std::string value;  // base64
  std::uint64_t size = 0;
};
// The checksum of the object made of `parts`: over the parts' raw values when `composite`, else
// (CRCs only) of the whole.
Result<Checksum> combine_checksums(ChecksumKind kind, bool composite,
                                   const std::vector<PartChecksum>& parts);

}  // namespace atelier::objects
