// Checks a body that comes in against what its head announced: length, and checksum or MD5.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "http/message.h"
#include "objects/checksum.h"

namespace atelier::objects::internal {

class BodyCheck {
 public:
  // From the head of a GET that asked with x-amz-checksum-mode. `whole`: the body is all of the
  // object, so that the object's digests are the body's.
  BodyCheck(const http::Headers& headers, std::uint64_t size, bool whole);
  void update(std::span<const std::byte> bytes);
  void update(std::string_view bytes);
  // kDataLoss when the body is not what was announced.
  [[nodiscard]] Result<void> finish(std::string_view what);

 private:
  std::uint64_t size_;
  std::uint64_t seen_ = 0;
  std::optional<Checksummer> checksum_;
  std::optional<Hasher> md5_;
  std::string expected_;
};

// True when an ETag is the MD5 of the bytes: not of parts, nor of an encrypted object.
bool is_md5_etag(std::string_view etag, const http::Headers& headers);

}  // namespace atelier::objects::internal
