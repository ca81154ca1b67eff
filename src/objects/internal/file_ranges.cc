#include "objects/internal/file_ranges.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace atelier::objects::internal {

Result<void> write_all_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return error_from_errno("write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Result<void> GatheredWriter::write(std::span<const std::byte> piece) {
  if (!block_) block_ = std::make_unique_for_overwrite<std::byte[]>(kBlock);
  while (!piece.empty()) {
    // A first block that does not begin on a boundary ends on one.
    const std::size_t room = kBlock - offset_ % kBlock - filled_;
    const std::size_t taken = std::min(room, piece.size());
    std::copy_n(piece.begin(), taken, block_.get() + filled_);
    filled_ += taken;
    piece = piece.subspan(taken);
    if (taken == room) TRY(flush());
  }
  return {};
}

Result<void> GatheredWriter::flush() {
  TRY(write_all_at(fd_, {block_.get(), filled_}, offset_));
  offset_ += filled_;
  filled_ = 0;
  return {};
}

Result<void> set_length(int fd, std::uint64_t length) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return error_from_errno("stat a stored body", errno);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size < length) return Error{Code::kDataLoss, "a stored body is shorter than its row says"};
  if (size == length) return {};
  if (ftruncate(fd, static_cast<off_t>(length)) == 0) return {};
  return error_from_errno("cut off a stored body", errno);
}

Result<void> copy_range(int from, std::uint64_t from_offset, int to, std::uint64_t to_offset,
                        std::uint64_t length) {
  auto source = static_cast<off_t>(from_offset);
  auto target = static_cast<off_t>(to_offset);
  while (length > 0) {
    const std::size_t piece = std::min<std::uint64_t>(length, std::uint64_t{1} << 30);
    const ssize_t copied = copy_file_range(from, &source, to, &target, piece, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0) return error_from_errno("copy a stored body", errno);
    if (copied == 0) return Error{Code::kDataLoss, "a stored body is shorter than its row says"};
    length -= static_cast<std::uint64_t>(copied);
  }
  return {};
}

}  // namespace atelier::objects::internal
