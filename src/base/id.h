// Identifiers that do not repeat: 128 random bits from the kernel, in lower-case hexadecimal.
#pragma once

#include <cstddef>
#include <string>

namespace atelier {

// `bytes` random bytes as 2 * bytes hexadecimal digits.
std::string random_id(std::size_t bytes = 16);

// `length` characters from [A-Za-z0-9], for keys that people copy.
std::string random_token(std::size_t length);

}  // namespace atelier
