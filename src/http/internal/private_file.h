// Files that hold secrets.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace atelier::http::internal {

// The bytes of a file that only its owner can use: one that others may read or write, or that
// belongs to another user, is kPermissionDenied by name. What is checked is what is read.
Result<std::string> read_private(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace atelier::http::internal
