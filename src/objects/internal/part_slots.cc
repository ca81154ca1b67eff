#include "objects/internal/part_slots.h"

#include <utility>

#include "objects/local_store.h"

namespace atelier::objects::internal {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

}  // namespace

PartSlots::Slot::~Slot() {
  if (!file.empty()) slots_.release(upload_, number_, stored_);
}

void PartSlots::Slot::stored() { stored_ = true; }

// Makes the file when this part may decide about the size of a place.
Result<void> PartSlots::choose_size(Upload& upload, unsigned number, std::uint64_t length) {
  if (!upload.slots.file.empty()) return {};
  if (length < kMinPartBytes || (number > 1 && length % kMiB != 0)) return {};
  upload.slots.file = TRY(files_.create()).name;
  upload.slots.slot_bytes = length;
  return {};
}

Result<std::unique_ptr<PartSlots::Slot>> PartSlots::reserve(const std::string& upload,
                                                            unsigned number, std::uint64_t length,
                                                            const Load& load) {
  std::unique_ptr<Slot> none;
  if (length <= kInlineBytes) return none;
  const std::lock_guard lock{mutex_};
  auto at = uploads_.find(upload);
  if (at == uploads_.end()) {
    Upload found{.slots = TRY(load())};
    found.has_row = !found.slots.file.empty();
    at = uploads_.emplace(upload, std::move(found)).first;
  }
  Upload& state = at->second;
  if (!state.closed) TRY(choose_size(state, number, length));
  const std::uint64_t slot_bytes = state.slots.slot_bytes;
  const bool fits = !state.slots.file.empty() && length <= slot_bytes &&
                    (number - 1) * slot_bytes + length <= kMaxObjectBytes;
  if (state.closed || !fits || state.slots.taken.contains(number)) return none;
  auto slot = std::make_unique<Slot>(*this, upload, number);
  slot->fd = TRY(files_.open_for_writing(state.slots.file));
  slot->file = state.slots.file;
  slot->slot_bytes = slot_bytes;
  slot->offset = (number - 1) * slot_bytes;
  slot->length = length;
  state.slots.taken.insert(number);
  ++state.under_way;
  return slot;
}

void PartSlots::release(const std::string& upload, unsigned number, bool stored) {
  const std::lock_guard lock{mutex_};
  const auto at = uploads_.find(upload);
  if (at == uploads_.end()) return;
  Upload& state = at->second;
  --state.under_way;
  if (stored) {
    if (!std::exchange(state.has_row, true)) files_.adopted(state.slots.file);
    if (state.ended && state.under_way == 0) uploads_.erase(at);
    return;
  }
  state.slots.taken.erase(number);
  if (state.under_way > 0) return;
  if (!state.has_row) {
    files_.remove(state.slots.file);
    files_.adopted(state.slots.file);
  }
  if (!state.has_row || state.ended) uploads_.erase(at);
}

bool PartSlots::close(const std::string& upload) {
  const std::lock_guard lock{mutex_};
  const auto at = uploads_.find(upload);
  // Not looked at since the start of the process: nobody writes, and the entry keeps it so.
  Upload& state = at == uploads_.end() ? uploads_[upload] : at->second;
  if (state.closed || state.under_way > 0) return false;
  state.closed = true;
  return true;
}

void PartSlots::reopen(const std::string& upload) {
  const std::lock_guard lock{mutex_};
  // Nothing is under way, so that the index knows all; it is asked anew.
  uploads_.erase(upload);
}

void PartSlots::forget(const std::string& upload) {
  const std::lock_guard lock{mutex_};
  const auto at = uploads_.find(upload);
  if (at == uploads_.end()) return;
  // With parts under way the entry stays until the last of them is gone.
  at->second.closed = true;
  at->second.ended = true;
  if (at->second.under_way == 0) uploads_.erase(at);
}

}  // namespace atelier::objects::internal
