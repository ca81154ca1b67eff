// Presigned S3 URLs of Signature Version 2: what boto3's generate_presigned_url() makes by default
// for the regions that once had it. Source: "Signing and authenticating REST requests" of the S3
// User Guide, and HmacV1QueryAuth of botocore for where the parts travel.
#include <fmt/core.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/hash.h"
#include "http/internal/signature.h"

namespace atelier::http::internal {
namespace {

// The query parameters that this version signs.
constexpr std::array<std::string_view, 22> kSignedParameters = {
    "acl",
    "cors",
    "delete",
    "lifecycle",
    "location",
    "logging",
    "notification",
    "partNumber",
    "policy",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "tagging",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
};

// As Signature Version 4 has it for presigned URLs. When one was made is not in it.
constexpr std::chrono::seconds kLongest{7 * 24 * 3600};

struct V2 {
  std::string access_key;
  std::string signature;
  std::string expires;
  std::string content_md5;
  std::string content_type;
  std::map<std::string, std::string> amz;         // lower-case names
  std::map<std::string, std::string> parameters;  // of kSignedParameters; "" without a value
};

std::string hmac_sha1_base64(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
  unsigned int length = 0;
  HMAC(EVP_sha1(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), raw.data(), &length);
  return to_base64({reinterpret_cast<const char*>(raw.data()), length});
}

Error twice(std::string_view name) {
  return refusal("AccessDenied", fmt::format("'{}' is given twice", name.substr(0, 64)));
}

// The parts of what is signed stand on lines and between '&' and '=': a part that holds one of
// these could be read in two ways, and one URL's signature would be good for another.
Result<void> check_text(std::string_view name, std::string_view text) {
  const auto breaks = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), breaks)) {
    return refusal("AccessDenied",
                   fmt::format("'{}' of a presigned URL of Signature Version 2 holds a control "
                               "character; presign with signature_version='s3v4'",
                               name.substr(0, 64)));
  }
  return {};
}

Result<void> read_parameter(std::string_view name, std::string_view value, bool has_value, V2& v2) {
  const std::string lower = to_lower(name);
  TRY(check_text("the query", name));
  TRY(check_text(name, value));
  std::string* place = name == "AWSAccessKeyId"  ? &v2.access_key
                       : name == "Signature"     ? &v2.signature
                       : name == "Expires"       ? &v2.expires
                       : lower == "content-md5"  ? &v2.content_md5
                       : lower == "content-type" ? &v2.content_type
                                                 : nullptr;
  if (place != nullptr) {
    if (!place->empty()) return twice(name);
    *place = value;
    return {};
  }
  if (lower.starts_with("x-amz-")) {
    if (!v2.amz.emplace(lower, value).second) return twice(name);
    return {};
  }
  if (std::find(kSignedParameters.begin(), kSignedParameters.end(), name) ==
      kSignedParameters.end()) {
    return refusal("AccessDenied",
                   fmt::format("a presigned URL of Signature Version 2 does not protect the "
                               "parameter '{}'; presign with signature_version='s3v4'",
                               name.substr(0, 64)));
  }
  if (value.find('&') != std::string_view::npos) {
    return refusal("AccessDenied",
                   fmt::format("a presigned URL of Signature Version 2 does not protect a '&' in "
                               "'{}'; presign with signature_version='s3v4'",
                               name));
  }
  std::string text = has_value ? "=" + std::string{value} : std::string{};
  if (!v2.parameters.emplace(name, std::move(text)).second) return twice(name);
  return {};
}

Result<void> read_query(std::string_view query, V2& v2) {
  std::size_t count = 0;
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(part.size() + 1, query.size()));
    if (part.empty()) continue;
    if (++count > 200) return refusal("AccessDenied", "more than 200 query parameters");
    const std::size_t equals = part.find('=');
    const Result<std::string> name = percent_decode(part.substr(0, equals), true);
    const Result<std::string> value = percent_decode(
        equals == std::string_view::npos ? std::string_view{} : part.substr(equals + 1), true);
    if (!name || !value) return refusal("AccessDenied", "the query holds a broken escape");
    TRY(read_parameter(*name, *value, equals != std::string_view::npos, v2));
  }
  return {};
}

// Headers count as if they were in the query; where both are there they must agree.
Result<void> read_headers(const Headers& headers, V2& v2) {
  for (const auto& [name, value] : headers.fields()) {
    const std::string lower = to_lower(name);
    if (lower == "content-md5" || lower == "content-type") {
      std::string& place = lower == "content-md5" ? v2.content_md5 : v2.content_type;
      if (!place.empty() && place != value) return twice(lower);
      place = value;
    } else if (lower.starts_with("x-amz-")) {
      const auto [place, added] = v2.amz.emplace(lower, value);
      if (!added && place->second != value) return twice(lower);
    }
  }
  // A name with a ':' in it would give its end away as the begin of a value.
  for (const auto& [name, value] : v2.amz) {
    TRY(check_text(name, value));
    if (name.find(':') != std::string::npos) {
      return refusal("AccessDenied",
                     fmt::format("'{}' is no name of a header", name.substr(0, 64)));
    }
  }
  TRY(check_text("content-md5", v2.content_md5));
  return check_text("content-type", v2.content_type);
}

std::string string_to_sign(const RequestHead& head, const V2& v2) {
  std::string text =
      fmt::format("{}\n{}\n{}\n{}\n", head.method, v2.content_md5, v2.content_type, v2.expires);
  for (const auto& [name, value] : v2.amz) text += name + ':' + value + '\n';
  text += head.path();
  char separator = '?';
  for (const auto& [name, value] : v2.parameters) {
    text += separator + name + value;
    separator = '&';
  }
  return text;
}

}  // namespace

bool has_v2_query(std::string_view query) {
  return query.find("AWSAccessKeyId=") != std::string_view::npos &&
         query.find("Signature=") != std::string_view::npos &&
         query.find("X-Amz-Signature=") == std::string_view::npos;
}

Result<Verified> verify_v2_query(const RequestHead& head, const KeyStore& keys, Time now) {
  V2 v2;
  TRY(read_query(head.query(), v2));
  TRY(read_headers(head.headers, v2));
  std::int64_t expires = 0;
  const char* end = v2.expires.data() + v2.expires.size();
  const auto parsed = std::from_chars(v2.expires.data(), end, expires);
  if (parsed.ec != std::errc{} || parsed.ptr != end || expires < 0) {
    return refusal("AccessDenied", "Expires must be a time in seconds since 1970");
  }
  const std::int64_t seconds = now.time_since_epoch() / std::chrono::seconds{1};
  if (seconds > expires) return refusal("AccessDenied", "Request has expired");
  if (expires - seconds > kLongest.count()) {
    return refusal("AccessDenied",
                   fmt::format("Expires is {} seconds from now; {} (a week) are the most",
                               expires - seconds, kLongest.count()));
  }
  const auto token = v2.amz.find("x-amz-security-token");
  const KeyStore::Entry entry = TRY(
      find_key(keys, v2.access_key, token == v2.amz.end() ? std::string{} : token->second, now));
  const std::string right =
      hmac_sha1_base64(entry.credentials.secret_key, string_to_sign(head, v2));
  if (!equal_in_constant_time(right, v2.signature)) {
    return refusal("SignatureDoesNotMatch",
                   "The request signature we calculated does not match the signature you "
                   "provided. Check your key and signing method.");
  }
  Verified verified;
  verified.principal = entry.principal;
  verified.service = "s3";
  verified.presigned = true;
  return verified;
}

}  // namespace atelier::http::internal
