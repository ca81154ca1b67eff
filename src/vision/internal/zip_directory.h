// The entries of a zip archive whose members are stored, not compressed: what torch.save writes.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "base/result.h"

namespace atelier::vision {

// Name -> the member's bytes within `archive`. Checks every bound and checksum; compressed or
// encrypted members, duplicates and archives of several parts are refused. Format: PKWARE
// APPNOTE 6.3, with zip64.
Result<std::map<std::string, std::span<const std::byte>, std::less<>>> read_zip_directory(
    std::span<const std::byte> archive, std::size_t max_entries);

}  // namespace atelier::vision
