// AWS Signature Version 4: signing for our clients, checking for our server. Source: "Signature
// Version 4 signing process" of the AWS General Reference, and "Authenticating Requests (AWS
// Signature Version 4)" of the S3 API Reference for presigned URLs and aws-chunked bodies.
//
//   Verified who = TRY(verify(head, keys, clock.now()));
//   PayloadReader reader{who, decoded_length(head)};
//   TRY(reader.feed(wire, sink));  // as often as there are bytes
//   TRY(reader.finish());          // only now are the bytes known to be what was signed
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "access/authority.h"
#include "base/result.h"
#include "base/time.h"
#include "http/message.h"

namespace atelier::http {

struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty for long-lived keys
};

// Who is calling, once a signature was found right.
struct Principal {
  std::string access_key;
  std::string account = "000000000000";
  std::string arn = {};  // "arn:aws:iam::000000000000:user/admin"
  std::string user_id = {};
  access::Authority authority{};  // nothing, unless the store of keys says more
  // Of a job's key: who answers for the jobs that it makes (jobs/job_access.h). Empty: the
  // principal itself, by its ARN.
  std::string creator = {};
};

// Looks keys up; called from many threads.
class KeyStore {
 public:
  struct Entry {
    Credentials credentials;
    Principal principal;
    std::optional<Time> expires;
  };
  virtual ~KeyStore() = default;
  // `session_token`: what came along, for stores that derive a key from it; the caller compares it
  // with the entry's.
  [[nodiscard]] virtual std::optional<Entry> find(std::string_view access_key,
                                                  std::string_view session_token) const = 0;
};

// How the body of a verified request is to be read and checked.
enum class Payload {
  kUnsigned,                // UNSIGNED-PAYLOAD, or a presigned URL
  kSha256,                  // x-amz-content-sha256 holds the digest
  kChunkedSigned,           // STREAMING-AWS4-HMAC-SHA256-PAYLOAD
  kChunkedSignedTrailer,    // STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER
  kChunkedUnsignedTrailer,  // STREAMING-UNSIGNED-PAYLOAD-TRAILER
};

struct Verified {
  Principal principal;
  std::string service;  // of the credential scope: "sagemaker", "s3", ...
  std::string region;
  Payload payload = Payload::kUnsigned;
  std::string payload_sha256;  // lower-case hexadecimal, for kSha256
  bool presigned = false;
  // For the chunk signatures of kChunkedSigned*.
  std::string signing_key;
  std::string scope;      // "20261130/us-west-2/s3/aws4_request"
  std::string timestamp;  // "20261130T070555Z"
  std::string seed_signature;
};

// True when the request carries a signature in any form (header or query), also in one that
// verify() refuses.
bool is_signed(const RequestHead& head);

// Checks the signature of the head. kUnauthenticated: none, unknown key, bad signature, expired,
// clock skew of more than 15 minutes; the message starts with the S3 code that fits
// ("SignatureDoesNotMatch: ...", "InvalidAccessKeyId: ...", "RequestTimeTooSkewed: ...",
// "AccessDenied: ...", "AuthorizationHeaderMalformed: ...", "AuthorizationQueryParametersError:
// ...", "ExpiredToken: ...", "InvalidToken: ...", "InvalidRequest: ...").
//
// Refused besides: a signature that leaves out Host or an x-amz-* header of the request. Presigned
// S3 URLs of Signature Version 2 are accepted, because boto3 still makes them by default for
// us-east-1, us-west-2 and other old regions; only if nothing in the query is left unsigned.
//
// `body_sha256` is the payload hash (lower-case hexadecimal) for services whose clients send no
// x-amz-content-sha256 (all but S3): without that header verify() checks with the digest given, or
// with that of an empty body, so such callers read the body first. A digest that contradicts the
// header is "XAmzContentSHA256Mismatch: ...".
Result<Verified> verify(const RequestHead& head, const KeyStore& keys, Time now,
                        std::string_view body_sha256 = {});

// What verify() checks that needs no body: the form of the signature, its date, the headers that it
// covers, and that the key is known and has not expired. For refusing before a body is kept.
Result<void> check_before_body(const RequestHead& head, const KeyStore& keys, Time now);

// Reads a body as `Verified` says: decodes aws-chunked framing, checks each chunk's signature or
// the digest of the whole, and collects trailers (such as x-amz-checksum-crc32).
class PayloadReader {
 public:
  using Sink = std::function<Result<void>(std::span<const std::byte>)>;
  // `decoded_length`: see below; a framed body without it is refused ("MissingContentLength: ...").
  PayloadReader(Verified verified, std::optional<std::uint64_t> decoded_length);
  PayloadReader(PayloadReader&&) noexcept;
  PayloadReader& operator=(PayloadReader&&) noexcept;
  ~PayloadReader();
  // Feeds bytes of the wire; decoded bytes go to `sink`, whose error is handed on. Framing is
  // bounded: lines, chunks (by decoded_length) and trailers.
  Result<void> feed(std::span<const std::byte> wire, const Sink& sink);
  // After the last byte. kDataLoss "XAmzContentSHA256Mismatch: ..." or "IncompleteBody: ..." if it
  // is not whole.
  Result<void> finish();
  // Names in lower case. Whether the trailers that x-amz-trailer announced are there, and right, is
  // for the caller to check.
  [[nodiscard]] const Headers& trailers() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// How many bytes of content a request has: x-amz-decoded-content-length when it is framed
// (aws-chunked), else Content-Length. Nothing when the request does not say.
std::optional<std::uint64_t> decoded_length(const RequestHead& head);

// Signs a request in place (again, for a retry): adds x-amz-date, x-amz-content-sha256 (for S3),
// x-amz-security-token and Authorization. `headers` must hold Host. `target` is the encoded path
// and query exactly as they go over the wire. `payload_sha256`: lower-case hexadecimal, or
// "UNSIGNED-PAYLOAD".
void sign(std::string_view method, std::string_view target, Headers& headers,
          std::string_view payload_sha256, const Credentials& credentials, std::string_view region,
          std::string_view service, Time now);

// A presigned URL's query for `target`: returns target with X-Amz-* appended.
std::string presign(std::string_view method, std::string_view target, std::string_view host,
                    const Credentials& credentials, std::string_view region,
                    std::string_view service, Time now, std::chrono::seconds valid_for);

}  // namespace atelier::http
