// UTF-8: what goes over the wire is valid, whatever a program wrote into its log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atelier::api {

bool is_valid_utf8(std::string_view text);
// Each byte that is not part of a valid character becomes U+FFFD.
std::string to_valid_utf8(std::string text);

// `text` cut to at most `max_characters` code points, never inside of one.
std::string cut_text(std::string_view text, std::size_t max_characters);
// Code points of valid UTF-8.
std::size_t count_characters(std::string_view text);

}  // namespace atelier::api
