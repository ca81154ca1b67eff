#include "objects/internal/file_ranges.h"
#include "objects/internal/local_store_impl.h"

namespace atelier::objects::internal {

StoreBody::~StoreBody() {
  if (name_.empty() || borrowed_) return;
  files_.remove(name_);
  files_.adopted(name_);
}

Result<void> StoreBody::append(std::span<const std::byte> bytes) {
  if (slot_) return append_to_slot(bytes);
  if (name_.empty() && bytes_.size() + bytes.size() <= kInlineBytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    size_ += bytes.size();
    return {};
  }
  TRY(move_to_file());
  TRY(write_all_at(fd_.get(), bytes, size_));
  size_ += bytes.size();
  return {};
}

Result<void> StoreBody::append_to_slot(std::span<const std::byte> bytes) {
  // More would run over the next part.
  if (size_ + bytes.size() > slot_->length) {
    return Error{Code::kDataLoss, "IncompleteBody: the part has more bytes than it announced"};
  }
  TRY(write_all_at(slot_->fd.get(), bytes, slot_->offset + size_));
  size_ += bytes.size();
  return {};
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

Result<void> StoreBody::append_file(int fd, std::uint64_t offset, std::uint64_t length) {
  TRY(move_to_file());
  TRY(copy_range(fd, offset, fd_.get(), size_, length));
  size_ += length;
  return {};
}

Result<void> StoreBody::link_file(const std::string& name, std::uint64_t size) {
  name_ = TRY(files_.link(name));
  size_ = size;
  return {};
}

void StoreBody::use_file(const std::string& name, std::uint64_t size) {
  name_ = name;
  size_ = size;
  borrowed_ = true;
}

Result<void> StoreBody::seal() {
  if (slot_) return files_.sync(slot_->file, slot_->fd.get());
  // A linked file has no descriptor here: its content is durable already, and link() saw to its
  // name.
  if (!fd_) return {};
  return files_.sync(name_, fd_.get());
}

Result<BodyRef> StoreBody::insert(Database& db) const {
  if (slot_) return BodyRef{0, slot_->file, slot_->offset};
  if (!name_.empty()) return BodyRef{0, name_};
  if (bytes_.empty()) return BodyRef{};
  TRY(db.run("INSERT INTO bodies(bytes) VALUES(?)", {Blob{bytes_}}));
  return BodyRef{db.last_id(), {}};
}

void StoreBody::adopted() {
  if (slot_) slot_->stored();
  slot_.reset();
  if (!name_.empty() && !borrowed_) files_.adopted(name_);
  name_.clear();
  fd_.reset();
}

}  // namespace atelier::objects::internal
