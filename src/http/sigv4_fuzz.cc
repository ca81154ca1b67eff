// The Authorization header, presigned queries (both versions) and everything that verify() looks
// at. Nothing that a fuzzer makes up may be accepted, as it does not know the secret.
#include <cstdlib>
#include <string>

#include "http/internal/request_reader.h"
#include "http/memory_key_store.h"
#include "http/sigv4.h"

using namespace atelier;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto* const keys = [] {
    auto* store = new http::MemoryKeyStore;
    store->put({{"AKIAIOSFODNN7EXAMPLE", "a secret that is not in the corpus", ""}, {}, {}});
    return store;
  }();
  static const Time now = *parse_iso8601("20130524T000000Z");
  http::internal::RequestReader reader{65536};
  std::size_t used = 0;
  auto result = reader.feed({reinterpret_cast<const char*>(data), size}, used);
  const auto* parsed = std::get_if<http::internal::ParsedHead>(&result);
  if (parsed == nullptr) return 0;
  static_cast<void>(http::is_signed(parsed->head));
  static_cast<void>(http::decoded_length(parsed->head));
  const Result<http::Verified> verified = http::verify(parsed->head, *keys, now);
  if (verified || verified.error().code != Code::kUnauthenticated) std::abort();
  return 0;
}
