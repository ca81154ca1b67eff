// Digests and text encodings of bytes, over OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atelier {

using Sha256 = std::array<std::uint8_t, 32>;

enum class Digest { kMd5, kSha1, kSha256, kSha512 };

// A running digest.
class Hasher {
 public:
  explicit Hasher(Digest digest);
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view bytes);
  // The raw digest (16, 20 or 32 bytes); the hasher is spent after it.
  [[nodiscard]] std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Raw digests.
std::string digest(Digest kind, std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view bytes);

std::string to_hex(std::string_view raw);
Result<std::string> from_hex(std::string_view text);
std::string to_base64(std::string_view raw);
Result<std::string> from_base64(std::string_view text);

// Compares secrets in a time that does not depend on where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

inline std::string sha256_hex(std::string_view bytes) {
  return to_hex(digest(Digest::kSha256, bytes));
}

}  // namespace atelier
