// Keys held in memory: those of the key file, and the short-lived ones that jobs get. Safe from
// every thread.
#pragma once

#include <map>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "http/sigv4.h"

namespace atelier::http {

class MemoryKeyStore final : public KeyStore {
 public:
  [[nodiscard]] std::optional<Entry> find(std::string_view access_key,
                                          std::string_view session_token = {}) const override;
  // Replaces an entry of the same access key.
  void put(Entry entry);
  void remove(std::string_view access_key);
  // Drops what expired before `now`.
  void remove_expired(Time now);
  [[nodiscard]] std::size_t size() const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace atelier::http
