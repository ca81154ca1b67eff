// The model's patterns, matched by RE2: time grows with the text and with nothing else, whoever
// wrote the text (docs/decisions/validation.md).
#pragma once

#include <string_view>

namespace atelier::api {

// Whether all of `text` (UTF-8) matches patterns()[index]. Compiled at first use, kept for the
// process; from any thread.
bool matches(int index, std::string_view text);

// Whether RE2 takes the pattern; matches() of one that it does not take is always true.
bool pattern_is_valid(int index);

}  // namespace atelier::api
