// The keys of a file as it is now: a change of the file counts from the next request on, without a
// restart. Safe from every thread.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/watched_file.h"
#include "http/key_file.h"

namespace atelier::http {

class LiveKeys final : public KeyStore {
 public:
  // Makes the file with one key for "admin" if there is none.
  static Result<std::unique_ptr<LiveKeys>> open(std::filesystem::path path);

  // Looks at the file first (one stat). One that cannot be read leaves the keys as they were, the
  // log says so once, and every later look tries again.
  [[nodiscard]] std::optional<Entry> find(std::string_view access_key,
                                          std::string_view session_token = {}) const override;
  // A key that may do everything, for the command line and the server itself.
  [[nodiscard]] Result<Entry> admin() const;
  // All keys of one principal; empty when it has none any more.
  [[nodiscard]] std::vector<Entry> with_arn(std::string_view arn) const;

 private:
  explicit LiveKeys(std::filesystem::path path) : watched_(std::move(path)) {}
  void look() const;

  mutable MemoryKeyStore store_;
  mutable std::mutex mutex_;  // guards what follows
  mutable WatchedFile watched_;
  mutable std::unique_ptr<KeyFile> file_;
  mutable std::string complaint_;  // the last one in the log
};

}  // namespace atelier::http
