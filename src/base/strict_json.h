// JSON of what grants rights.
#pragma once

#include "base/json.h"

namespace atelier {

// As parse_json, but an object that has a member twice is refused by its name: parse_json takes the
// last one, and forgets what the first one forbade.
Result<json::value> parse_strict_json(std::string_view text, std::size_t max_depth = 64);

}  // namespace atelier
