#include "http/memory_key_store.h"

#include <mutex>
#include <utility>

namespace atelier::http {

std::optional<KeyStore::Entry> MemoryKeyStore::find(std::string_view access_key,
                                                    std::string_view /*session_token*/) const {
  const std::shared_lock lock{mutex_};
  const auto found = entries_.find(access_key);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

void MemoryKeyStore::put(Entry entry) {
  const std::unique_lock lock{mutex_};
  std::string access_key = entry.credentials.access_key;
  entries_.insert_or_assign(std::move(access_key), std::move(entry));
}

void MemoryKeyStore::remove(std::string_view access_key) {
  const std::unique_lock lock{mutex_};
  const auto found = entries_.find(access_key);
  if (found != entries_.end()) entries_.erase(found);
}

void MemoryKeyStore::remove_expired(Time now) {
  const std::unique_lock lock{mutex_};
  std::erase_if(entries_, [&](const auto& item) {
    return item.second.expires && *item.second.expires <= now;
  });
}

std::size_t MemoryKeyStore::size() const {
  const std::shared_lock lock{mutex_};
  return entries_.size();
}

}  // namespace atelier::http
