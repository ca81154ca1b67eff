// Session tokens and tickets of strangers: none is right, whatever it holds.
#include <cstdint>
#include <string_view>

#include "base/hash.h"
#include "http/session_keys.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;  // NOLINT
  static const http::SessionKeys keys{"a secret that is not in the corpus"};
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  for (const std::string& token : {std::string{text}, to_base64(text)}) {
    ATELIER_CHECK(!keys.open_ticket(token), "a ticket was made up");
    ATELIER_CHECK(!keys.find(keys.derive(token).access_key, token), "a session was made up");
  }
  return 0;
}
