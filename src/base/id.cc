#include "base/id.h"

#include <sys/random.h>

#include <string_view>
#include <vector>

#include "base/error.h"

namespace atelier {
namespace {

std::vector<unsigned char> random_bytes(std::size_t count) {
  std::vector<unsigned char> bytes(count);
  std::size_t have = 0;
  while (have < count) {
    const ssize_t got = getrandom(bytes.data() + have, count - have, 0);
    ATELIER_CHECK(got > 0, "the kernel gives no random bytes");
    have += static_cast<std::size_t>(got);
  }
  return bytes;
}

}  // namespace

std::string random_id(std::size_t bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes * 2);
  for (const unsigned char byte : random_bytes(bytes)) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string random_token(std::size_t length) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::string text;
  while (text.size() < length) {
    for (const unsigned char byte : random_bytes(length)) {
      // 248 is the largest multiple of 62 below 256: beyond it letters would not be equally likely.
      if (byte < 248 && text.size() < length) text += kLetters[byte % kLetters.size()];
    }
  }
  return text;
}

}  // namespace atelier
