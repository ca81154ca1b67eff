// The pieces of SigV4 that signing, checking and chunk signatures share; private to http/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/message.h"
#include "http/sigv4.h"

namespace atelier::http::internal {

inline constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";
// SHA-256 of nothing.
inline constexpr std::string_view kEmptySha256 =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

// "20260101/us-west-2/s3/aws4_request", taken apart.
struct Scope {
  std::string date;
  std::string region;
  std::string service;
  [[nodiscard]] std::string text() const;
};

// S3 signs the path as it is on the wire; every other service encodes it once more.
[[nodiscard]] bool is_s3(std::string_view service);

// The derived key; remembered per thread for the last few (secret, scope), since it changes once a
// day.
std::string signing_key(std::string_view secret_key, const Scope& scope);

// Decoded and encoded again, sorted, without X-Amz-Signature.
Result<std::string> canonical_query(std::string_view query);

// For services other than S3: without dot segments and empty ones, encoded once more.
std::string canonical_service_path(std::string_view path);

// `signed_headers`: lower-case names in the order in which they are signed.
std::string canonical_request(std::string_view method, std::string_view canonical_path,
                              std::string_view canonical_query, const Headers& headers,
                              const std::vector<std::string_view>& signed_headers,
                              std::string_view payload_hash);

// Hexadecimal signature of a canonical request.
std::string signature_of(std::string_view canonical_request, std::string_view timestamp,
                         const Scope& scope, std::string_view key);

std::string to_lower(std::string_view text);

// Presigned URLs of Signature Version 2, for S3.
bool has_v2_query(std::string_view query);
Result<Verified> verify_v2_query(const RequestHead& head, const KeyStore& keys, Time now);

// kUnauthenticated with an S3 code in front of the message.
Error refusal(std::string_view s3_code, std::string_view message);

// Looks up a key and checks its expiry and its session token.
Result<KeyStore::Entry> find_key(const KeyStore& keys, std::string_view access_key,
                                 std::string_view session_token, Time now);

}  // namespace atelier::http::internal
