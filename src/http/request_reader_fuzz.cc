// Request heads, chunked bodies, and the percent- and query-decoding of what they say. The same
// bytes, however they are cut, must give the same outcome.
#include <cstdlib>
#include <string>

#include "http/internal/request_reader.h"

namespace {

using namespace atelier::http;            // NOLINT
using namespace atelier::http::internal;  // NOLINT

struct Outcome {
  int status = 0;  // 0: needs more, 1: a head, else the refusal's
  std::string head;
  std::string body;
  bool broken = false;
};

void read_body(RequestReader& reader, std::string_view wire, std::size_t piece, Outcome& outcome) {
  std::byte room[64];
  std::string pending;
  std::size_t at = 0;
  while (true) {
    const auto decoded = reader.decode(pending, room);
    if (decoded.written > sizeof room || decoded.used > pending.size()) std::abort();
    outcome.body.append(reinterpret_cast<const char*>(room), decoded.written);
    pending.erase(0, decoded.used);
    if (decoded.broken) outcome.broken = true;
    if (decoded.done || decoded.broken) return;
    if (decoded.used > 0) continue;
    if (at == wire.size()) return;
    pending += wire.substr(at, piece);
    at = std::min(at + piece, wire.size());
  }
}

Outcome read(std::string_view wire, std::size_t piece) {
  Outcome outcome;
  RequestReader reader{4096};
  std::string pending;
  std::size_t at = 0;
  while (at < wire.size()) {
    pending += wire.substr(at, piece);
    at = std::min(at + piece, wire.size());
    std::size_t used = 0;
    auto result = reader.feed(pending, used);
    if (used > pending.size()) std::abort();
    pending.erase(0, used);
    if (const auto* refused = std::get_if<Refusal>(&result)) {
      if (refused->status < 400 || refused->status > 599) std::abort();
      outcome.status = refused->status;
      return outcome;
    }
    if (auto* parsed = std::get_if<ParsedHead>(&result)) {
      const RequestHead& head = parsed->head;
      if (head.content_length.has_value() == parsed->chunked) std::abort();
      outcome.status = 1;
      outcome.head = head.method + ' ' + head.target;
      for (const auto& [name, value] : head.headers.fields()) outcome.head += name + ':' + value;
      static_cast<void>(percent_decode(head.path()).has_value());
      static_cast<void>(parse_query(head.query()).has_value());
      if (parsed->chunked) {
        pending += wire.substr(at);
        read_body(reader, pending, piece, outcome);
      }
      return outcome;
    }
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view wire{reinterpret_cast<const char*>(data), size};
  const Outcome whole = read(wire, size + 1);
  const Outcome cut = read(wire, 7);
  // What is not a request may be refused sooner in one cut than in the other; what is one, is one
  // in both, and the same.
  if ((whole.status == 1) != (cut.status == 1) || whole.head != cut.head) std::abort();
  if (whole.broken != cut.broken || (!whole.broken && whole.body != cut.body)) std::abort();
  return 0;
}
