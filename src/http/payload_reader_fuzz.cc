// aws-chunked bodies. The first byte chooses the framing, the second the announced length; the rest
// is the wire. However the wire is cut, the outcome is the same, and the content never exceeds what
// was announced.
#include <cstdlib>
#include <string>

#include "http/sigv4.h"

namespace {

using namespace atelier;        // NOLINT
using namespace atelier::http;  // NOLINT

struct Outcome {
  bool right = false;
  std::string content;
  std::size_t trailers = 0;
};

Outcome read(Payload payload, std::optional<std::uint64_t> length, std::string_view wire,
             std::size_t piece) {
  Verified how;
  how.payload = payload;
  how.payload_sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
  how.signing_key = "key";
  PayloadReader reader{how, length};
  Outcome outcome;
  const PayloadReader::Sink sink = [&](std::span<const std::byte> part) -> Result<void> {
    outcome.content.append(reinterpret_cast<const char*>(part.data()), part.size());
    return {};
  };
  while (!wire.empty()) {
    const auto part = wire.substr(0, piece);
    wire.remove_prefix(part.size());
    if (!reader.feed(std::as_bytes(std::span{part}), sink)) return outcome;
    if (length && outcome.content.size() > *length) std::abort();
  }
  outcome.right = reader.finish().has_value();
  outcome.trailers = reader.trailers().fields().size();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static constexpr Payload kKinds[] = {Payload::kUnsigned, Payload::kSha256,
                                       Payload::kChunkedSigned, Payload::kChunkedSignedTrailer,
                                       Payload::kChunkedUnsignedTrailer};
  const Payload payload = kKinds[data[0] % 5];
  const std::optional<std::uint64_t> length =
      data[1] == 255 ? std::nullopt : std::optional<std::uint64_t>{data[1]};
  const std::string_view wire{reinterpret_cast<const char*>(data) + 2, size - 2};
  const Outcome whole = read(payload, length, wire, wire.size() + 1);
  const Outcome cut = read(payload, length, wire, 3);
  if (whole.right != cut.right || whole.trailers != cut.trailers) std::abort();
  if (whole.right && whole.content != cut.content) std::abort();
  if (whole.right && length && whole.content.size() != *length) std::abort();
  return 0;
}
