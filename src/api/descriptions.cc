#include "api/descriptions.h"

#include <utility>

namespace atelier::api {
namespace {

constexpr std::size_t kBesideText = 192;  // an entry, its place in the map, and their allocations

}  // namespace

std::size_t Descriptions::cost(const Entry& entry) { return entry.text->size() + kBesideText; }

void Descriptions::drop(std::list<Entry>::iterator entry) {
  bytes_ -= cost(*entry);
  by_id_.erase(entry->version.id);
  entries_.erase(entry);
}

Descriptions::Text Descriptions::find(const jobs::RecordVersion& version) {
  const std::lock_guard lock{mutex_};
  const auto found = by_id_.find(version.id);
  if (found == by_id_.end() || found->second->version != version) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->text;
}

void Descriptions::keep(const jobs::RecordVersion& version, Text text) {
  Entry entry{version, std::move(text)};
  if (cost(entry) > max_bytes_) return;
  const std::lock_guard lock{mutex_};
  if (const auto found = by_id_.find(version.id); found != by_id_.end()) drop(found->second);
  bytes_ += cost(entry);
  entries_.push_front(std::move(entry));
  by_id_.emplace(version.id, entries_.begin());
  while (bytes_ > max_bytes_) drop(std::prev(entries_.end()));
}

std::size_t Descriptions::bytes() const {
  const std::lock_guard lock{mutex_};
  return bytes_;
}

}  // namespace atelier::api
