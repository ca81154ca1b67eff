// Ranges of open files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace atelier::objects::internal {

// Writes all bytes at `offset`, across short writes and EINTR.
Result<void> write_all_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset);

// Cuts the file off at `length`. A file that is shorter is kDataLoss.
Result<void> set_length(int fd, std::uint64_t length);

// Copies `length` bytes from one file to another, in the kernel where that can be. A source that is
// shorter is kDataLoss.
Result<void> copy_range(int from, std::uint64_t from_offset, int to, std::uint64_t to_offset,
                        std::uint64_t length);

}  // namespace atelier::objects::internal
