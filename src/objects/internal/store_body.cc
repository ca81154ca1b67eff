#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "objects/internal/local_store_impl.h"

namespace atelier::objects::internal {

StoreBody::~StoreBody() {
  if (name_.empty()) return;
  files_.remove(name_);
  files_.adopted(name_);
}

Result<void> StoreBody::append(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  if (name_.empty() && bytes_.size() + bytes.size() <= kInlineBytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }
  TRY(move_to_file());
  return write_all(fd_.get(), bytes);
}

Result<void> StoreBody::move_to_file() {
  if (!name_.empty()) return {};
  BodyFiles::NewFile file = TRY(files_.create());
  name_ = std::move(file.name);
  fd_ = std::move(file.fd);
  TRY(write_all(fd_.get(), bytes_));
  bytes_.clear();
  bytes_.shrink_to_fit();
  return {};
}

Result<void> StoreBody::append_file(int fd, std::uint64_t length) {
  TRY(move_to_file());
  size_ += length;
  off_t from = 0;
  while (length > 0) {
    const std::size_t piece = std::min<std::uint64_t>(length, std::uint64_t{1} << 30);
    ssize_t copied = copy_file_range(fd, &from, fd_.get(), nullptr, piece, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0) return error_from_errno("copy a part", errno);
    if (copied == 0) return Error{Code::kDataLoss, "a stored part is shorter than its row says"};
    length -= static_cast<std::uint64_t>(copied);
  }
  return {};
}

Result<void> StoreBody::link_file(const std::string& name, std::uint64_t size) {
  name_ = TRY(files_.link(name));
  size_ = size;
  return {};
}

Result<void> StoreBody::seal() {
  // A linked file has no descriptor here: its content is durable already, and link() saw to its
  // name.
  if (!fd_) return {};
  return files_.sync(name_, fd_.get());
}

Result<BodyRef> StoreBody::insert(Database& db) const {
  if (!name_.empty()) return BodyRef{0, name_};
  if (bytes_.empty()) return BodyRef{};
  TRY(db.run("INSERT INTO bodies(bytes) VALUES(?)", {Blob{bytes_}}));
  return BodyRef{db.last_id(), {}};
}

void StoreBody::adopted() {
  if (name_.empty()) return;
  files_.adopted(name_);
  name_.clear();
  fd_.reset();
}

}  // namespace atelier::objects::internal
