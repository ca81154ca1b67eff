#include "http/sigv4.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/hash.h"
#include "http/internal/signature.h"

namespace atelier::http {

using namespace internal;  // NOLINT: this file is the other half of internal/signature.h

namespace {

constexpr std::chrono::minutes kMaxSkew{15};
constexpr std::chrono::seconds kMaxPresignedLife{604'800};  // seven days, as S3 has it
constexpr std::size_t kMaxSignedHeaders = 200;
constexpr std::size_t kMaxAuthorization = 16 * 1024;

// What a request says about its signature, from either of its two places.
struct Claim {
  bool presigned = false;
  std::string access_key;
  Scope scope;
  std::string signed_headers;  // "host;x-amz-date"
  std::string signature;
  std::string timestamp;  // "20260101T000000Z"
  Time time;
  std::chrono::seconds valid_for{0};  // presigned only
  std::string session_token;
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool is_hex64(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
         });
}

// "AKID/20260101/us-west-2/s3/aws4_request"; an access key may hold slashes itself.
Result<void> read_credential(std::string_view text, std::string_view s3_code, Claim& claim) {
  std::array<std::string_view, 4> last;
  for (std::size_t i = last.size(); i-- > 0;) {
    const std::size_t slash = text.rfind('/');
    if (slash == std::string_view::npos) {
      return refusal(s3_code, "the credential is not KEY/YYYYMMDD/REGION/SERVICE/aws4_request");
    }
    last[i] = text.substr(slash + 1);
    text = text.substr(0, slash);
  }
  if (last[3] != "aws4_request" || text.empty() || last[0].size() != 8 || last[2].empty()) {
    return refusal(s3_code, "the credential is not KEY/YYYYMMDD/REGION/SERVICE/aws4_request");
  }
  claim.access_key = text;
  claim.scope = {std::string{last[0]}, std::string{last[1]}, std::string{last[2]}};
  return {};
}

Result<void> read_timestamp(std::string_view text, std::string_view s3_code, Claim& claim) {
  Result<Time> time = parse_iso8601(text);
  if (!time || text.size() != 16) {
    return refusal(s3_code,
                   fmt::format("the date '{}' is not like 20261130T070555Z", text.substr(0, 64)));
  }
  claim.timestamp = text;
  claim.time = *time;
  return {};
}

// x-amz-date, or else Date in either of the formats that clients sign.
Result<void> read_header_date(const Headers& headers, Claim& claim) {
  static constexpr std::string_view kNoDate =
      "AWS authentication requires a valid Date or x-amz-date header";
  if (const auto date = headers.find("x-amz-date")) {
    return read_timestamp(*date, "AccessDenied", claim);
  }
  const auto date = headers.find("date");
  if (!date) return refusal("AccessDenied", kNoDate);
  std::string text{*date};
  // RFC 5322 writes the zone as -0000 or +0000 (Python's formatdate does so).
  if (text.ends_with(" -0000") || text.ends_with(" +0000")) text.replace(text.size() - 5, 5, "GMT");
  Result<Time> time = parse_http_date(text);
  if (!time) time = parse_iso8601(text);
  if (!time) return refusal("AccessDenied", kNoDate);
  claim.time = *time;
  claim.timestamp = format_basic_iso8601(*time);
  return {};
}

// AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=...
Result<Claim> read_authorization(std::string_view text, const Headers& headers) {
  static constexpr std::string_view kCode = "AuthorizationHeaderMalformed";
  if (text.size() > kMaxAuthorization) return refusal(kCode, "the header is too long");
  const std::string_view algorithm = text.substr(0, text.find(' '));
  if (algorithm != kAlgorithm) {
    return refusal("InvalidRequest",
                   fmt::format("the authorization mechanism '{}' is not supported; use {}",
                               algorithm.substr(0, 64), kAlgorithm));
  }
  text.remove_prefix(algorithm.size());
  Claim claim;
  for (std::string_view part : split(text, ',')) {
    part = trim(part);
    const std::string_view name = part.substr(0, part.find('='));
    const std::string_view value = part.substr(std::min(name.size() + 1, part.size()));
    if (name == "Credential" && claim.access_key.empty()) {
      TRY(read_credential(value, kCode, claim));
    } else if (name == "SignedHeaders" && claim.signed_headers.empty()) {
      claim.signed_headers = value;
    } else if (name == "Signature" && claim.signature.empty()) {
      claim.signature = value;
    } else {
      return refusal(kCode, fmt::format("'{}' is repeated or not known", name.substr(0, 64)));
    }
  }
  if (claim.access_key.empty() || claim.signed_headers.empty() || claim.signature.empty()) {
    return refusal(kCode, "it needs Credential, SignedHeaders and Signature");
  }
  TRY(read_header_date(headers, claim));
  claim.session_token = headers.joined("x-amz-security-token").value_or("");
  return claim;
}

Result<Claim> read_query(std::string_view query) {
  static constexpr std::string_view kCode = "AuthorizationQueryParametersError";
  auto pairs = parse_query(query);
  if (!pairs) return refusal(kCode, pairs.error().message);
  std::map<std::string_view, std::string_view> given;
  for (const auto& [name, value] : *pairs) {
    if (!name.starts_with("X-Amz-")) continue;
    if (!given.emplace(name, value).second) {
      return refusal(kCode, fmt::format("'{}' is given twice", name.substr(0, 64)));
    }
  }
  for (const std::string_view name : {"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature",
                                      "X-Amz-Date", "X-Amz-SignedHeaders", "X-Amz-Expires"}) {
    if (!given.contains(name)) return refusal(kCode, fmt::format("'{}' is missing", name));
  }
  if (given["X-Amz-Algorithm"] != kAlgorithm) {
    return refusal(kCode, fmt::format("X-Amz-Algorithm only supports {}", kAlgorithm));
  }
  Claim claim;
  claim.presigned = true;
  TRY(read_credential(given["X-Amz-Credential"], kCode, claim));
  TRY(read_timestamp(given["X-Amz-Date"], kCode, claim));
  const std::string_view text = given["X-Amz-Expires"];
  std::int64_t seconds = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size() || seconds < 1 ||
      seconds > kMaxPresignedLife.count()) {
    return refusal(kCode, fmt::format("X-Amz-Expires is '{}'; it must be 1 to {} seconds",
                                      text.substr(0, 32), kMaxPresignedLife.count()));
  }
  claim.valid_for = std::chrono::seconds{seconds};
  claim.signed_headers = given["X-Amz-SignedHeaders"];
  claim.signature = given["X-Amz-Signature"];
  if (const auto token = given.find("X-Amz-Security-Token"); token != given.end()) {
    claim.session_token = token->second;
  }
  return claim;
}

Result<Claim> read_claim(const RequestHead& head) {
  const auto authorization = head.headers.find("authorization");
  const bool in_query = head.query().find("X-Amz-Signature=") != std::string_view::npos ||
                        head.query().find("X-Amz-Algorithm=") != std::string_view::npos;
  if (authorization && in_query) {
    return refusal("InvalidRequest", "only one of the Authorization header and X-Amz-Signature");
  }
  if (authorization) return read_authorization(*authorization, head.headers);
  if (in_query) return read_query(head.query());
  return refusal("AccessDenied", "the request is not signed");
}

Result<void> check_time(const Claim& claim, Time now) {
  if (!claim.timestamp.starts_with(claim.scope.date)) {
    return refusal(
        claim.presigned ? "AuthorizationQueryParametersError" : "AuthorizationHeaderMalformed",
        fmt::format("the credential's date {} is not that of the request, {}", claim.scope.date,
                    claim.timestamp));
  }
  if (claim.presigned) {
    if (now > claim.time + claim.valid_for) {
      return refusal("AccessDenied", fmt::format("Request has expired: it was valid until {}",
                                                 format_iso8601(claim.time + claim.valid_for)));
    }
    if (claim.time > now + kMaxSkew) {
      return refusal("AccessDenied",
                     fmt::format("Request is not yet valid: it is dated {}", claim.timestamp));
    }
    return {};
  }
  if (claim.time > now + kMaxSkew || claim.time < now - kMaxSkew) {
    return refusal("RequestTimeTooSkewed",
                   fmt::format("the request is dated {} and the server's time is {}: more than 15 "
                               "minutes apart",
                               claim.timestamp, format_basic_iso8601(now)));
  }
  return {};
}

// Host and every x-amz-* header must be signed: otherwise whoever holds the request could change
// what it means.
Result<void> check_signed_headers(const RequestHead& head, const Claim& claim,
                                  const std::vector<std::string_view>& names) {
  if (names.size() > kMaxSignedHeaders) {
    return refusal("AuthorizationHeaderMalformed",
                   fmt::format("more than {} signed headers", kMaxSignedHeaders));
  }
  const auto has = [&](std::string_view name) {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view other) { return equal_without_case(other, name); });
  };
  if (!has("host") || !head.headers.find("host")) {
    return refusal("AccessDenied", "the Host header must be there and signed");
  }
  for (const auto& [name, value] : head.headers.fields()) {
    if (name.size() < 6 || !equal_without_case(std::string_view{name}.substr(0, 6), "x-amz-")) {
      continue;
    }
    if (has(name)) continue;
    // Says of a presigned URL what holds without it.
    if (claim.presigned && equal_without_case(name, "x-amz-content-sha256") &&
        value == kUnsignedPayload) {
      continue;
    }
    return refusal("AccessDenied",
                   fmt::format("There were headers present in the request which were not signed: "
                               "'{}'",
                               name.substr(0, 64)));
  }
  return {};
}

// The payload hash as it was signed, and how the body is therefore to be read.
Result<std::string> payload_hash(const RequestHead& head, const Claim& claim,
                                 std::string_view body_sha256, Verified& verified) {
  std::string hash = head.headers.joined("x-amz-content-sha256").value_or("");
  if (hash.empty() && claim.presigned && is_s3(claim.scope.service)) hash = kUnsignedPayload;
  if (hash.empty()) hash = body_sha256.empty() ? kEmptySha256 : body_sha256;
  if (hash == kUnsignedPayload) {
    verified.payload = Payload::kUnsigned;
  } else if (hash == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD") {
    verified.payload = Payload::kChunkedSigned;
  } else if (hash == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER") {
    verified.payload = Payload::kChunkedSignedTrailer;
  } else if (hash == "STREAMING-UNSIGNED-PAYLOAD-TRAILER") {
    verified.payload = Payload::kChunkedUnsignedTrailer;
  } else if (is_hex64(hash)) {
    verified.payload = Payload::kSha256;
    verified.payload_sha256 = to_lower(hash);
    if (!body_sha256.empty() && body_sha256 != verified.payload_sha256) {
      return refusal("XAmzContentSHA256Mismatch",
                     "x-amz-content-sha256 is not the digest of the body");
    }
  } else {
    return refusal("InvalidRequest",
                   fmt::format("x-amz-content-sha256 is '{}'; it must be UNSIGNED-PAYLOAD, a "
                               "STREAMING-... name that S3 documents, or a SHA-256 in hexadecimal",
                               hash.substr(0, 80)));
  }
  return hash;
}

// The path as it was signed: as on the wire, or (for clients whose HTTP library encoded less than
// their signer) fully encoded. Both decode to the same path, so either proves the same request.
std::vector<std::string> canonical_paths(std::string_view path, std::string_view service) {
  if (!is_s3(service)) return {canonical_service_path(path)};
  std::vector<std::string> paths{path.empty() ? std::string{"/"} : std::string{path}};
  const Result<std::string> decoded = percent_decode(path);
  if (!decoded) return paths;
  std::string encoded = percent_encode(*decoded, true);
  if (encoded != paths.front()) paths.push_back(std::move(encoded));
  return paths;
}

}  // namespace

bool is_signed(const RequestHead& head) {
  const std::string_view query = head.query();
  return head.headers.find("authorization").has_value() ||
         query.find("X-Amz-Signature=") != std::string_view::npos ||
         query.find("X-Amz-Algorithm=") != std::string_view::npos || has_v2_query(query);
}

Result<Verified> verify(const RequestHead& head, const KeyStore& keys, Time now,
                        std::string_view body_sha256) {
  if (has_v2_query(head.query()) && !head.headers.find("authorization")) {
    return verify_v2_query(head, keys, now);
  }
  const Claim claim = TRY(read_claim(head));
  TRY(check_time(claim, now));
  const std::vector<std::string_view> names = split(claim.signed_headers, ';');
  TRY(check_signed_headers(head, claim, names));
  const KeyStore::Entry entry = TRY(find_key(keys, claim.access_key, claim.session_token, now));

  Verified verified;
  const std::string hash = TRY(payload_hash(head, claim, body_sha256, verified));
  Result<std::string> query = canonical_query(head.query());
  if (!query) return refusal("SignatureDoesNotMatch", query.error().message);
  const std::string key = signing_key(entry.credentials.secret_key, claim.scope);
  bool right = false;
  for (const std::string& path : canonical_paths(head.path(), claim.scope.service)) {
    const std::string request =
        canonical_request(head.method, path, *query, head.headers, names, hash);
    right = equal_in_constant_time(signature_of(request, claim.timestamp, claim.scope, key),
                                   claim.signature);
    if (right) break;
  }
  if (!right) {
    return refusal("SignatureDoesNotMatch",
                   "The request signature we calculated does not match the signature you "
                   "provided. Check your key and signing method.");
  }
  verified.principal = entry.principal;
  verified.service = claim.scope.service;
  verified.region = claim.scope.region;
  verified.presigned = claim.presigned;
  verified.signing_key = key;
  verified.scope = claim.scope.text();
  verified.timestamp = claim.timestamp;
  verified.seed_signature = claim.signature;
  return verified;
}

Result<void> check_before_body(const RequestHead& head, const KeyStore& keys, Time now) {
  if (has_v2_query(head.query()) && !head.headers.find("authorization")) {
    TRY(verify_v2_query(head, keys, now));
    return {};
  }
  const Claim claim = TRY(read_claim(head));
  TRY(check_time(claim, now));
  TRY(check_signed_headers(head, claim, split(claim.signed_headers, ';')));
  TRY(find_key(keys, claim.access_key, claim.session_token, now));
  return {};
}

void sign(std::string_view method, std::string_view target, Headers& headers,
          std::string_view payload_sha256, const Credentials& credentials, std::string_view region,
          std::string_view service, Time now) {
  Headers kept;
  for (const auto& [name, value] : headers.fields()) {
    if (equal_without_case(name, "authorization") || equal_without_case(name, "x-amz-date") ||
        equal_without_case(name, "x-amz-security-token") ||
        (is_s3(service) && equal_without_case(name, "x-amz-content-sha256"))) {
      continue;
    }
    kept.add(name, value);
  }
  const Scope scope{format_basic_iso8601(now).substr(0, 8), std::string{region},
                    std::string{service}};
  kept.add("x-amz-date", format_basic_iso8601(now));
  if (is_s3(service)) kept.add("x-amz-content-sha256", std::string{payload_sha256});
  if (!credentials.session_token.empty()) {
    kept.add("x-amz-security-token", credentials.session_token);
  }

  // What a proxy or the HTTP library may add or change is left out.
  static constexpr std::array<std::string_view, 6> kNotSigned = {
      "user-agent", "expect", "connection", "transfer-encoding", "x-amzn-trace-id", "accept"};
  std::vector<std::string> owned;
  for (const auto& [name, value] : kept.fields()) {
    std::string lower = to_lower(name);
    if (std::find(kNotSigned.begin(), kNotSigned.end(), lower) == kNotSigned.end()) {
      owned.push_back(std::move(lower));
    }
  }
  std::sort(owned.begin(), owned.end());
  owned.erase(std::unique(owned.begin(), owned.end()), owned.end());
  const std::vector<std::string_view> names{owned.begin(), owned.end()};

  const std::string_view path = target.substr(0, target.find('?'));
  const std::string_view query =
      path.size() < target.size() ? target.substr(path.size() + 1) : std::string_view{};
  const std::string request = canonical_request(method, canonical_paths(path, service).front(),
                                                canonical_query(query).value_or(std::string{query}),
                                                kept, names, payload_sha256);
  const std::string signature = signature_of(request, format_basic_iso8601(now), scope,
                                             signing_key(credentials.secret_key, scope));
  std::string signed_headers;
  for (const std::string& name : owned) {
    if (!signed_headers.empty()) signed_headers += ';';
    signed_headers += name;
  }
  kept.add("Authorization",
           fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm,
                       credentials.access_key, scope.text(), signed_headers, signature));
  headers = std::move(kept);
}

std::string presign(std::string_view method, std::string_view target, std::string_view host,
                    const Credentials& credentials, std::string_view region,
                    std::string_view service, Time now, std::chrono::seconds valid_for) {
  const std::string timestamp = format_basic_iso8601(now);
  const Scope scope{timestamp.substr(0, 8), std::string{region}, std::string{service}};
  std::string whole{target};
  whole += target.find('?') == std::string_view::npos ? '?' : '&';
  whole += fmt::format(
      "X-Amz-Algorithm={}&X-Amz-Credential={}&X-Amz-Date={}&X-Amz-Expires={}&X-Amz-SignedHeaders="
      "host",
      kAlgorithm, percent_encode(credentials.access_key + '/' + scope.text()), timestamp,
      valid_for.count());
  if (!credentials.session_token.empty()) {
    whole += "&X-Amz-Security-Token=" + percent_encode(credentials.session_token);
  }
  const std::string_view path = std::string_view{whole}.substr(0, whole.find('?'));
  const std::string_view query = std::string_view{whole}.substr(path.size() + 1);
  const Headers headers{{"Host", std::string{host}}};
  const std::string request =
      canonical_request(method, canonical_paths(path, service).front(),
                        canonical_query(query).value_or(std::string{query}), headers, {"host"},
                        is_s3(service) ? kUnsignedPayload : kEmptySha256);
  return whole + "&X-Amz-Signature=" +
         signature_of(request, timestamp, scope, signing_key(credentials.secret_key, scope));
}

std::optional<std::uint64_t> decoded_length(const RequestHead& head) {
  const auto hash = head.headers.find("x-amz-content-sha256");
  if (!hash || !hash->starts_with("STREAMING-")) return head.content_length;
  const auto text = head.headers.find("x-amz-decoded-content-length");
  std::uint64_t length = 0;
  if (!text) return std::nullopt;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), length);
  if (parsed.ec != std::errc{} || parsed.ptr != text->data() + text->size()) return std::nullopt;
  return length;
}

}  // namespace atelier::http
