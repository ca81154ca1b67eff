#include "api/text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace atelier::api {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

// Bytes of the valid character at the start of `text`; 0 when there is none. The bounds on the
// second byte rule out overlong forms, surrogates and what is above U+10FFFF (RFC 3629, part 4).
std::size_t character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xC2 && first <= 0xDF   ? 2
                           : (first & 0xF0U) == 0xE0        ? 3
                           : first >= 0xF0 && first <= 0xF4 ? 4
                                                            : 0;
  if (size == 0 || text.size() < size) return 0;
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  return std::all_of(text.begin() + 2, text.begin() + static_cast<std::ptrdiff_t>(size), continues)
             ? size
             : 0;
}

// Bytes at the start of `text`, eight by eight, that are all ASCII: most of what is sent is.
std::size_t ascii_words(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080U) != 0) break;
  }
  return i;
}

// Where the valid part of `text` ends.
std::size_t valid_prefix(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    i += ascii_words(text.substr(i));
    if (i == text.size()) break;
    const std::size_t size = character_at(text.substr(i));
    if (size == 0) break;
    i += size;
  }
  return i;
}

}  // namespace

bool is_valid_utf8(std::string_view text) { return valid_prefix(text) == text.size(); }

std::string to_valid_utf8(std::string text) {
  std::size_t good = valid_prefix(text);
  if (good == text.size()) return text;
  std::string out;
  std::string_view rest = text;
  while (!rest.empty()) {
    out += rest.substr(0, good);
    rest.remove_prefix(good);
    if (rest.empty()) break;
    out += "\xEF\xBF\xBD";
    rest.remove_prefix(1);
    good = valid_prefix(rest);
  }
  return out;
}

std::size_t count_characters(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, continues));
}

std::string cut_text(std::string_view text, std::size_t max_characters) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!continues(text[i]) && ++characters > max_characters) return std::string(text.substr(0, i));
  }
  return std::string(text);
}

}  // namespace atelier::api
