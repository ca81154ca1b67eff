// What is asked of a certificate besides serving with it (server.h).
#pragma once

#include <filesystem>

#include "base/result.h"

namespace atelier::http {

// Whether the first certificate of a PEM file vouches for itself, so that clients who trust it need
// no other.
Result<bool> is_self_signed(const std::filesystem::path& certificate);

}  // namespace atelier::http
