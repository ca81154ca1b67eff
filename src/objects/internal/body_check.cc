#include "objects/internal/body_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "objects/internal/s3_replies.h"

namespace atelier::objects::internal {

bool is_md5_etag(std::string_view etag, const http::Headers& headers) {
  const bool hex = etag.size() == 32 && std::all_of(etag.begin(), etag.end(), [](char c) {
                     return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                   });
  const std::string_view encryption = headers.find("x-amz-server-side-encryption").value_or("");
  return hex && (encryption.empty() || encryption == "AES256");
}

BodyCheck::BodyCheck(const http::Headers& headers, std::uint64_t size, bool whole) : size_(size) {
  if (!whole) return;
  for (const ChecksumKind kind : kChecksumKinds) {
    const auto value = headers.find(checksum_header(kind));
    // "...-3" is a checksum of parts.
    if (!value || value->find('-') != std::string_view::npos) continue;
    checksum_.emplace(kind);
    expected_ = *value;
    return;
  }
  const std::string etag = unquote_etag(headers.find("etag").value_or(""));
  if (!is_md5_etag(etag, headers)) return;
  md5_.emplace(Digest::kMd5);
  expected_ = etag;
}

void BodyCheck::update(std::span<const std::byte> bytes) {
  seen_ += bytes.size();
  if (checksum_) checksum_->update(bytes);
  if (md5_) md5_->update(bytes);
}

void BodyCheck::update(std::string_view bytes) {
  update(std::as_bytes(std::span{bytes.data(), bytes.size()}));
}

Result<void> BodyCheck::finish(std::string_view what) {
  if (seen_ != size_) {
    return Error{Code::kDataLoss,
                 fmt::format("{}: {} bytes came, {} were announced", what, seen_, size_),
                 Retry::kYes};
  }
  std::string computed = expected_;
  if (checksum_) computed = to_base64(checksum_->finish());
  if (md5_) computed = to_hex(md5_->finish());
  if (computed == expected_) return {};
  return Error{
      Code::kDataLoss,
      fmt::format("{}: the bytes have {} {}, not {}", what,
                  checksum_ ? checksum_name(checksum_->kind()) : "MD5", computed, expected_),
      Retry::kYes};
}

}  // namespace atelier::objects::internal
