// The head of a request, as S3 reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "http/message.h"
#include "objects/checksum.h"
#include "objects/local_store.h"

namespace atelier::objects::internal {

struct S3Request {
  http::RequestHead head{};
  std::string id{};      // of the request
  std::string bucket{};  // "" at the level of the service
  std::string key{};     // "" at the level of a bucket
  std::vector<std::pair<std::string, std::string>> query{};

  [[nodiscard]] std::optional<std::string_view> parameter(std::string_view name) const;
  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const {
    return head.headers.find(name);
  }
};

// Path-style only: "/bucket/key". The key is everything behind the bucket, byte for byte; it must
// be UTF-8 of at most 1,024 bytes.
Result<S3Request> parse_request(const http::RequestHead& head);

Result<void> check_bucket_name(std::string_view name);
bool is_utf8(std::string_view text);

// "bytes=0-9", "bytes=5-", "bytes=-3" against an object of `size` bytes. Nothing when there is no
// range to honour (none, several, or not to be understood, which RFC 9110 says to ignore);
// InvalidRange when it lies outside.
struct ByteRange {
  std::uint64_t first = 0;
  std::uint64_t length = 0;
};
Result<std::optional<ByteRange>> parse_range(std::optional<std::string_view> header,
                                             std::uint64_t size);

// Conditions of a read; `prefix` is "" or "x-amz-copy-source-".
enum class Condition { kHolds, kNotModified, kFailed };
Condition check_read_conditions(const S3Request& request, std::string_view prefix,
                                std::string_view etag, Time modified);
Conditions write_conditions(const S3Request& request);

// A decimal number within [least, most]; InvalidArgument names the parameter.
Result<std::uint64_t> parse_number(std::string_view name, std::string_view text,
                                   std::uint64_t least, std::uint64_t most);

// What of the head is kept with an object; checked for size and for what this server lacks.
Result<StoredHeaders> stored_headers(const S3Request& request);
// The header x-amz-tagging, checked.
Result<std::string> stored_tags(const S3Request& request);
inline constexpr std::size_t kMaxObjectTags = 10;
inline constexpr std::size_t kMaxBucketTags = 50;
// At most `most` tags, none empty, too long or twice there.
Result<void> check_tags(const std::vector<std::pair<std::string, std::string>>& tags,
                        std::size_t most);

// The checksum that the request announces in a header, with its value, or in a trailer, without.
struct AnnouncedChecksum {
  ChecksumKind kind = ChecksumKind::kCrc64Nvme;
  std::optional<std::string> value{};
  bool in_trailer = false;
};
Result<std::optional<AnnouncedChecksum>> announced_checksum(const S3Request& request);

// "/bucket/key?versionId=null" of x-amz-copy-source.
Result<std::pair<std::string, std::string>> parse_copy_source(std::string_view header);

}  // namespace atelier::objects::internal
