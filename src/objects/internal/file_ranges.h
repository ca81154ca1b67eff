// Ranges of open files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"

namespace atelier::objects::internal {

// Writes all bytes at `offset`, across short writes and EINTR.
Result<void> write_all_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset);

// Writes a file from `offset` on, in order, by aligned blocks: what comes in is in pieces of 16 KiB
// (curl's limit), each of which begins and ends within a page. A third less CPU for a download.
// What was not flushed is lost.
class GatheredWriter {
 public:
  GatheredWriter(int fd, std::uint64_t offset) : fd_(fd), offset_(offset) {}
  Result<void> write(std::span<const std::byte> piece);
  Result<void> flush();

 private:
  // Larger ones would make the kernel take larger pages than it keeps at hand: on a virtual machine
  // whose host takes back what is free, every second run needed twice the time.
  static constexpr std::size_t kBlock = 32 * 1024;
  int fd_;
  std::uint64_t offset_;  // of the block's first byte
  std::unique_ptr<std::byte[]> block_;
  std::size_t filled_ = 0;
};

// Cuts the file off at `length`. A file that is shorter is kDataLoss.
Result<void> set_length(int fd, std::uint64_t length);

// Copies `length` bytes from one file to another, in the kernel where that can be. A source that is
// shorter is kDataLoss.
Result<void> copy_range(int from, std::uint64_t from_offset, int to, std::uint64_t to_offset,
                        std::uint64_t length);

}  // namespace atelier::objects::internal
