#include "objects/internal/s3_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <set>

#include "base/id.h"
#include "objects/internal/s3_error.h"

namespace atelier::objects::internal {
namespace {

constexpr std::size_t kMaxKeyBytes = 1024;
constexpr std::size_t kMaxMetadataBytes = 2048;

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string lower(std::string_view text) {
  std::string out{text};
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_one_of(text.front(), " \t")) text.remove_prefix(1);
  while (!text.empty() && is_one_of(text.back(), " \t")) text.remove_suffix(1);
  return text;
}

// Whether one of a list such as `"a", W/"b", *` names the ETag.
bool etag_matches(std::string_view list, std::string_view etag) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view item = trimmed(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (item.starts_with("W/")) item.remove_prefix(2);
    if (item.size() >= 2 && item.front() == '"' && item.back() == '"') {
      item = item.substr(1, item.size() - 2);
    }
    if (item == "*" || item == etag) return true;
  }
  return false;
}

std::optional<std::uint64_t> digits(std::string_view text) {
  std::uint64_t value = 0;
  const auto [at, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || at != text.data() + text.size() || text.empty())
    return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string_view> S3Request::parameter(std::string_view name) const {
  for (const auto& [key_of_pair, value] : query) {
    if (key_of_pair == name) return value;
  }
  return std::nullopt;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                               : lead >= 0xE0 && lead < 0xF0 ? 3
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                                                             : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    // Overlong forms, surrogates, and what is beyond U+10FFFF.
    const auto second = length > 1 ? static_cast<unsigned char>(text[i + 1]) : 0x80U;
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90)) {
      return false;
    }
    i += length;
  }
  return true;
}

Result<void> check_bucket_name(std::string_view name) {
  const bool characters = std::all_of(name.begin(), name.end(), [](char c) {
    return is_lower(c) || is_digit(c) || c == '.' || c == '-';
  });
  const bool ends =
      !name.empty() && !is_one_of(name.front(), ".-") && !is_one_of(name.back(), ".-");
  const bool address =
      std::all_of(name.begin(), name.end(), [](char c) { return is_digit(c) || c == '.'; }) &&
      std::count(name.begin(), name.end(), '.') == 3;
  if (name.size() >= 3 && name.size() <= 63 && characters && ends && !address &&
      name.find("..") == std::string_view::npos) {
    return {};
  }
  return s3_error(
      "InvalidBucketName",
      fmt::format("'{}' is no bucket name: 3 to 63 of a-z, 0-9, '.' and '-', starting and "
                  "ending with a letter or digit, no '..', no IP address",
                  name));
}

Result<S3Request> parse_request(const http::RequestHead& head) {
  S3Request request;
  request.head = head;
  request.id = random_id(8);
  std::string_view path = head.path();
  if (!path.starts_with('/')) return s3_error("InvalidURI", "the path must start with '/'");
  path.remove_prefix(1);
  const std::size_t slash = std::min(path.find('/'), path.size());
  const Result<std::string> bucket = http::percent_decode(path.substr(0, slash));
  const Result<std::string> key =
      http::percent_decode(path.substr(std::min(slash + 1, path.size())));
  if (!bucket || !key) return s3_error("InvalidURI", "the path has a broken %-escape");
  if (!is_utf8(*bucket) || !is_utf8(*key)) return s3_error("InvalidURI", "the path is not UTF-8");
  Result<std::vector<std::pair<std::string, std::string>>> query = http::parse_query(head.query());
  if (!query) return s3_error("InvalidURI", "the query: " + query.error().message);
  if (key->size() > kMaxKeyBytes) {
    return s3_error("KeyTooLongError",
                    fmt::format("the key has {} bytes; {} is the most", key->size(), kMaxKeyBytes));
  }
  if (bucket->empty() && !path.empty()) {
    return s3_error("InvalidBucketName", "the path names no bucket");
  }
  if (!bucket->empty()) TRY(check_bucket_name(*bucket));
  request.bucket = *bucket;
  request.key = *key;
  request.query = *std::move(query);
  return request;
}

Result<std::optional<ByteRange>> parse_range(std::optional<std::string_view> header,
                                             std::uint64_t size) {
  using Found = std::optional<ByteRange>;
  if (!header || !header->starts_with("bytes=")) return Found{};
  const std::string_view text = trimmed(header->substr(6));
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos || text.find(',') != std::string_view::npos) return Found{};
  const std::string_view left = trimmed(text.substr(0, dash));
  const std::string_view right = trimmed(text.substr(dash + 1));
  const std::optional<std::uint64_t> first = digits(left);
  const std::optional<std::uint64_t> last = digits(right);
  if ((!left.empty() && !first) || (!right.empty() && !last) || (!first && !last)) return Found{};
  if (first && last && *last < *first) return Found{};
  const Error outside = s3_error(
      "InvalidRange", fmt::format("the range '{}' is outside of the {} bytes", *header, size));
  if (!first) {
    if (*last == 0 || size == 0) return outside;
    const std::uint64_t length = std::min(*last, size);
    return Found{{size - length, length}};
  }
  if (*first >= size) return outside;
  const std::uint64_t end = last ? std::min(*last, size - 1) : size - 1;
  return Found{{*first, end - *first + 1}};
}

Condition check_read_conditions(const S3Request& request, std::string_view prefix,
                                std::string_view etag, Time modified) {
  const auto field = [&](std::string_view name) {
    return request.header(std::string{prefix} + std::string{name});
  };
  // HTTP dates have whole seconds; so has the comparison.
  const auto second = std::chrono::floor<std::chrono::seconds>(modified);
  const auto date = [&](std::string_view name) -> std::optional<Time> {
    const auto text = field(name);
    if (!text) return std::nullopt;
    Result<Time> time = parse_http_date(*text);
    return time ? std::optional{*time} : std::nullopt;
  };
  // The order of RFC 9110, part 13.2.2.
  if (const auto match = field("if-match")) {
    if (!etag_matches(*match, etag)) return Condition::kFailed;
  } else if (const auto since = date("if-unmodified-since")) {
    if (second > *since) return Condition::kFailed;
  }
  if (const auto none = field("if-none-match")) {
    if (etag_matches(*none, etag)) return Condition::kNotModified;
  } else if (const auto since = date("if-modified-since")) {
    if (second <= *since) return Condition::kNotModified;
  }
  return Condition::kHolds;
}

Conditions write_conditions(const S3Request& request) {
  Conditions conditions;
  conditions.if_none_match = request.header("if-none-match").value_or("") == "*";
  std::string_view match = trimmed(request.header("if-match").value_or(""));
  if (match.size() >= 2 && match.front() == '"' && match.back() == '"') {
    match = match.substr(1, match.size() - 2);
  }
  conditions.if_match = match;
  return conditions;
}

Result<std::uint64_t> parse_number(std::string_view name, std::string_view text,
                                   std::uint64_t least, std::uint64_t most) {
  const std::optional<std::uint64_t> value = digits(text);
  if (value && *value >= least && *value <= most) return *value;
  return s3_error("InvalidArgument", fmt::format("{} is '{}'; it must be a number from {} to {}",
                                                 name, text, least, most));
}

namespace {

constexpr std::array<std::string_view, 11> kStoredNames = {
    "content-type",
    "content-disposition",
    "content-language",
    "cache-control",
    "expires",
    "x-amz-website-redirect-location",
    "x-amz-storage-class",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
    "x-amz-server-side-encryption-context",
};

// Framing is not part of what is stored.
std::string without_aws_chunked(std::string_view encodings) {
  std::string kept;
  while (!encodings.empty()) {
    const std::size_t comma = std::min(encodings.find(','), encodings.size());
    const std::string_view one = trimmed(encodings.substr(0, comma));
    encodings.remove_prefix(std::min(comma + 1, encodings.size()));
    if (lower(one) == "aws-chunked" || one.empty()) continue;
    if (!kept.empty()) kept += ",";
    kept += one;
  }
  return kept;
}

Result<void> refuse_unsupported(const S3Request& request) {
  for (const auto& [name, value] : request.head.headers.fields()) {
    const std::string field = lower(name);
    if (field.starts_with("x-amz-server-side-encryption-customer") ||
        field.starts_with("x-amz-object-lock") || field.starts_with("x-amz-grant")) {
      return s3_error("NotImplemented", fmt::format("the header '{}' is not supported", field));
    }
    if (field == "if-none-match" && value != "*") {
      return s3_error(
          "NotImplemented",
          fmt::format("If-None-Match is '{}'; for a write only '*' is supported", value));
    }
    if (field == "x-amz-acl" && value != "private" && value != "bucket-owner-full-control" &&
        value != "bucket-owner-read") {
      return s3_error("AccessControlListNotSupported",
                      fmt::format("the ACL '{}' is not supported; 'private' is", value));
    }
  }
  return {};
}

}  // namespace

Result<StoredHeaders> stored_headers(const S3Request& request) {
  TRY(refuse_unsupported(request));
  StoredHeaders kept;
  std::size_t metadata = 0;
  for (const auto& [name, value] : request.head.headers.fields()) {
    const std::string field = lower(name);
    if (field.starts_with("x-amz-meta-")) {
      metadata += field.size() - std::strlen("x-amz-meta-") + value.size();
      const auto same = std::find_if(kept.begin(), kept.end(),
                                     [&](const auto& pair) { return pair.first == field; });
      if (same != kept.end()) {
        same->second += "," + value;
      } else {
        kept.emplace_back(field, value);
      }
    } else if (field == "content-encoding") {
      std::string encodings = without_aws_chunked(value);
      if (!encodings.empty()) kept.emplace_back(field, std::move(encodings));
    } else if (std::find(kStoredNames.begin(), kStoredNames.end(), field) != kStoredNames.end()) {
      kept.emplace_back(field, value);
    }
  }
  if (metadata > kMaxMetadataBytes) {
    return s3_error("MetadataTooLarge", fmt::format("the metadata has {} bytes; {} is the most",
                                                    metadata, kMaxMetadataBytes));
  }
  return kept;
}

Result<void> check_tags(const std::vector<std::pair<std::string, std::string>>& tags,
                        std::size_t most) {
  if (tags.size() > most) {
    return s3_error("InvalidTag", fmt::format("{} tags; {} are the most", tags.size(), most));
  }
  std::set<std::string_view> names;
  for (const auto& [name, value] : tags) {
    if (name.empty() || name.size() > 128 * 4 || value.size() > 256 * 4 || !is_utf8(name) ||
        !is_utf8(value)) {
      return s3_error("InvalidTag", fmt::format("the tag '{}' is empty or too long", name));
    }
    if (!names.insert(name).second) {
      return s3_error("InvalidTag", fmt::format("the tag '{}' is there twice", name));
    }
  }
  return {};
}

Result<std::string> stored_tags(const S3Request& request) {
  const auto header = request.header("x-amz-tagging");
  if (!header) return std::string{};
  const auto tags = http::parse_query(*header, true);
  if (!tags) return s3_error("InvalidTag", "x-amz-tagging: " + tags.error().message);
  TRY(check_tags(*tags, kMaxObjectTags));
  std::string text;
  for (const auto& [name, value] : *tags) {
    if (!text.empty()) text += "&";
    text += http::percent_encode(name) + "=" + http::percent_encode(value);
  }
  return text;
}

Result<std::optional<AnnouncedChecksum>> announced_checksum(const S3Request& request) {
  std::optional<AnnouncedChecksum> found;
  for (const ChecksumKind kind : kChecksumKinds) {
    const auto value = request.header(checksum_header(kind));
    if (!value) continue;
    if (found) return s3_error("InvalidRequest", "more than one checksum header");
    const Result<std::string> raw = from_base64(*value);
    if (!raw || raw->size() != checksum_length(kind)) {
      return s3_error("InvalidRequest", fmt::format("the value '{}' of {} is not valid", *value,
                                                    checksum_header(kind)));
    }
    found = {kind, std::string{*value}, false};
  }
  if (found) return found;
  if (const auto trailer = request.header("x-amz-trailer")) {
    for (const ChecksumKind kind : kChecksumKinds) {
      if (lower(trimmed(*trailer)) == checksum_header(kind)) {
        return std::optional{AnnouncedChecksum{kind, std::nullopt, true}};
      }
    }
    return s3_error("InvalidRequest", fmt::format("the trailer '{}' is not supported", *trailer));
  }
  for (const std::string_view name : {"x-amz-sdk-checksum-algorithm", "x-amz-checksum-algorithm"}) {
    const auto algorithm = request.header(name);
    if (!algorithm) continue;
    const auto kind = find_checksum_kind(*algorithm);
    if (!kind) {
      return s3_error("InvalidRequest",
                      fmt::format("the checksum '{}' is not supported", *algorithm));
    }
    return std::optional{AnnouncedChecksum{*kind, std::nullopt, false}};
  }
  return found;
}

Result<std::pair<std::string, std::string>> parse_copy_source(std::string_view header) {
  const std::size_t question = header.find('?');
  if (question != std::string_view::npos) {
    if (header.substr(question + 1) != "versionId=null") {
      return s3_error("NotImplemented",
                      "x-amz-copy-source with a versionId: versions are not kept");
    }
    header = header.substr(0, question);
  }
  if (header.starts_with('/')) header.remove_prefix(1);
  const Result<std::string> decoded = http::percent_decode(header);
  const std::size_t slash = decoded ? decoded->find('/') : std::string::npos;
  if (slash == std::string::npos || slash + 1 == decoded->size() || !is_utf8(*decoded)) {
    return s3_error(
        "InvalidArgument",
        fmt::format("x-amz-copy-source is '{}'; it must be bucket/key, URL-encoded", header));
  }
  return std::pair{decoded->substr(0, slash), decoded->substr(slash + 1)};
}

}  // namespace atelier::objects::internal
