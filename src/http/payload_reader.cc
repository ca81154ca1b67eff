// Bodies as their signature says: plain, or in the aws-chunked framing. Source: "Signature
// calculations for the Authorization header: transferring payload in multiple chunks" and "...
// including trailing headers" of the S3 API Reference.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/hash.h"
#include "http/internal/signature.h"

namespace atelier::http {

using namespace internal;  // NOLINT: this file is the other half of internal/signature.h

namespace {

constexpr std::size_t kMaxChunkLine = 256;  // 16 digits, ";chunk-signature=", 64 digits
constexpr std::size_t kMaxTrailerLine = 4096;
constexpr std::size_t kMaxTrailers = 16;
constexpr std::string_view kTrailerSignature = "x-amz-trailer-signature";

Error bad_frame(std::string_view message) {
  return Error{Code::kInvalidArgument,
               fmt::format("InvalidRequest: aws-chunked body: {}", message)};
}

Error incomplete(std::uint64_t got, std::uint64_t expected) {
  return Error{
      Code::kDataLoss,
      fmt::format("IncompleteBody: {} bytes of content came, {} were announced", got, expected)};
}

}  // namespace

struct PayloadReader::State {
  enum class Place { kPlain, kSizeLine, kData, kDataEnd, kTrailers, kDone };

  Verified verified;
  std::optional<std::uint64_t> expected;
  Place place = Place::kPlain;
  std::string line;
  std::uint64_t decoded = 0;
  std::uint64_t chunk_left = 0;
  std::string chunk_signature;
  std::string previous_signature;
  Hasher hasher{Digest::kSha256};  // of the whole, or of the chunk
  Headers trailers;
  std::string signed_trailers;
  bool trailer_signed = false;
  std::size_t trailer_lines = 0;

  State(Verified how, std::optional<std::uint64_t> length)
      : verified(std::move(how)), expected(length), previous_signature(verified.seed_signature) {
    if (framed()) place = Place::kSizeLine;
  }

  [[nodiscard]] bool framed() const {
    return verified.payload != Payload::kUnsigned && verified.payload != Payload::kSha256;
  }
  [[nodiscard]] bool chunks_signed() const {
    return verified.payload == Payload::kChunkedSigned ||
           verified.payload == Payload::kChunkedSignedTrailer;
  }

  Result<void> plain(std::span<const std::byte> wire, const Sink& sink) {
    decoded += wire.size();
    if (expected && decoded > *expected) {
      return Error{Code::kInvalidArgument,
                   fmt::format("InvalidRequest: more than the {} bytes announced", *expected)};
    }
    if (verified.payload == Payload::kSha256) hasher.update(wire);
    return sink(wire);
  }

  // Moves bytes into `line` up to a line feed; true when the line is whole (without its end).
  Result<bool> take_line(std::span<const std::byte>& wire, std::size_t limit) {
    const auto end = std::find(wire.begin(), wire.end(), std::byte{'\n'});
    const std::size_t size = static_cast<std::size_t>(end - wire.begin());
    if (line.size() + size > limit) return bad_frame(fmt::format("a line of over {} bytes", limit));
    line.append(reinterpret_cast<const char*>(wire.data()), size);
    if (end == wire.end()) {
      wire = {};
      return false;
    }
    wire = wire.subspan(size + 1);
    if (line.ends_with('\r')) line.pop_back();
    return true;
  }

  // "1000;chunk-signature=<64 digits>", or without the extension when chunks are not signed.
  Result<void> begin_chunk() {
    const std::string_view text = std::string_view{line}.substr(0, line.find(';'));
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), chunk_left, 16);
    if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) {
      return bad_frame(fmt::format("'{}' is not a chunk size", text.substr(0, 32)));
    }
    if (chunk_left > *expected - decoded) {
      return bad_frame(
          fmt::format("a chunk of {} bytes goes beyond the {} announced", chunk_left, *expected));
    }
    if (chunks_signed()) {
      static constexpr std::string_view kExtension = ";chunk-signature=";
      const std::string_view rest = std::string_view{line}.substr(text.size());
      if (!rest.starts_with(kExtension) || rest.size() != kExtension.size() + 64) {
        return bad_frame("a chunk without its chunk-signature");
      }
      chunk_signature = rest.substr(kExtension.size());
      hasher = Hasher{Digest::kSha256};
    }
    line.clear();
    place = Place::kData;
    if (chunk_left > 0) return {};
    place = Place::kTrailers;  // the last chunk: empty, and signed all the same
    return end_chunk();
  }

  Result<void> data(std::span<const std::byte>& wire, const Sink& sink) {
    const auto piece = wire.first(std::min<std::uint64_t>(wire.size(), chunk_left));
    wire = wire.subspan(piece.size());
    chunk_left -= piece.size();
    decoded += piece.size();
    if (chunks_signed()) hasher.update(piece);
    TRY(sink(piece));
    if (chunk_left > 0) return {};
    place = Place::kDataEnd;
    return end_chunk();
  }

  Result<void> end_chunk() {
    if (!chunks_signed()) return {};
    const std::string text =
        fmt::format("{}-PAYLOAD\n{}\n{}\n{}\n{}\n{}", kAlgorithm, verified.timestamp,
                    verified.scope, previous_signature, kEmptySha256, to_hex(hasher.finish()));
    TRY(check_signature(text, chunk_signature, "a chunk"));
    previous_signature = chunk_signature;
    return {};
  }

  Result<void> check_signature(std::string_view text, std::string_view given,
                               std::string_view what) const {
    if (equal_in_constant_time(to_hex(hmac_sha256(verified.signing_key, text)), given)) return {};
    return refusal("SignatureDoesNotMatch", fmt::format("the signature of {} is wrong", what));
  }

  Result<void> trailer() {
    if (line.empty()) {
      // Some clients end the last trailer with "\n\r\n", so a blank line before the signature of
      // the trailers is not the end.
      if (verified.payload == Payload::kChunkedSignedTrailer && !trailer_signed &&
          ++trailer_lines <= kMaxTrailers) {
        return {};
      }
      place = Place::kDone;
      return {};
    }
    if (verified.payload == Payload::kChunkedSigned) return bad_frame("bytes after the last chunk");
    if (++trailer_lines > kMaxTrailers) {
      return bad_frame(fmt::format("more than {} trailers", kMaxTrailers));
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || colon == 0) return bad_frame("a trailer without a name");
    const std::string name = to_lower(std::string_view{line}.substr(0, colon));
    std::string_view value = std::string_view{line}.substr(colon + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    while (value.ends_with(' ') || value.ends_with('\r')) value.remove_suffix(1);
    if (name == kTrailerSignature && verified.payload == Payload::kChunkedSignedTrailer) {
      if (trailer_signed) return bad_frame("two signatures of the trailers");
      trailer_signed = true;
      const std::string text =
          fmt::format("{}-TRAILER\n{}\n{}\n{}\n{}", kAlgorithm, verified.timestamp, verified.scope,
                      previous_signature, sha256_hex(signed_trailers));
      TRY(check_signature(text, value, "the trailers"));
    } else {
      if (trailer_signed) return bad_frame("a trailer after the signature of the trailers");
      signed_trailers.append(name).append(":").append(value).append("\n");
      trailers.add(name, std::string{value});
    }
    return {};
  }

  Result<void> feed(std::span<const std::byte> wire, const Sink& sink) {
    if (place == Place::kPlain) return wire.empty() ? Result<void>{} : plain(wire, sink);
    if (!expected) {
      return Error{Code::kInvalidArgument,
                   "MissingContentLength: an aws-chunked body needs x-amz-decoded-content-length"};
    }
    while (!wire.empty()) {
      switch (place) {
        case Place::kSizeLine:
          if (TRY(take_line(wire, kMaxChunkLine))) TRY(begin_chunk());
          break;
        case Place::kData:
          TRY(data(wire, sink));
          break;
        case Place::kDataEnd:
          if (!TRY(take_line(wire, 1))) break;
          if (!line.empty()) return bad_frame("a chunk that does not end where it said");
          place = Place::kSizeLine;
          break;
        case Place::kTrailers:
          if (!TRY(take_line(wire, kMaxTrailerLine))) break;
          TRY(trailer());
          line.clear();
          break;
        default:
          return bad_frame("bytes after its end");
      }
    }
    return {};
  }

  Result<void> finish() {
    // After the last signed chunk nothing but a line end can follow.
    const bool whole = place == Place::kPlain || place == Place::kDone ||
                       (place == Place::kTrailers && verified.payload == Payload::kChunkedSigned);
    if (expected && decoded < *expected) return incomplete(decoded, *expected);
    if (!whole) {
      return Error{Code::kDataLoss, "IncompleteBody: the aws-chunked body ends in its midst"};
    }
    if (verified.payload == Payload::kChunkedSignedTrailer && !trailer_signed) {
      return refusal("SignatureDoesNotMatch", "the signature of the trailers is missing");
    }
    if (verified.payload == Payload::kSha256 &&
        to_hex(hasher.finish()) != verified.payload_sha256) {
      return Error{Code::kDataLoss,
                   "XAmzContentSHA256Mismatch: the provided 'x-amz-content-sha256' header does not "
                   "match what was computed."};
    }
    return {};
  }
};

PayloadReader::PayloadReader(Verified verified, std::optional<std::uint64_t> decoded_length)
    : state_(std::make_unique<State>(std::move(verified), decoded_length)) {}
PayloadReader::PayloadReader(PayloadReader&&) noexcept = default;
PayloadReader& PayloadReader::operator=(PayloadReader&&) noexcept = default;
PayloadReader::~PayloadReader() = default;

Result<void> PayloadReader::feed(std::span<const std::byte> wire, const Sink& sink) {
  return state_->feed(wire, sink);
}
Result<void> PayloadReader::finish() { return state_->finish(); }
const Headers& PayloadReader::trailers() const { return state_->trailers; }

}  // namespace atelier::http
