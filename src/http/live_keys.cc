#include "http/live_keys.h"

#include "base/log.h"

namespace atelier::http {

Result<std::unique_ptr<LiveKeys>> LiveKeys::open(std::filesystem::path path) {
  std::unique_ptr<LiveKeys> keys{new LiveKeys{std::move(path)}};
  keys->watched_.changed();
  keys->file_ =
      std::make_unique<KeyFile>(TRY(KeyFile::open_or_create(keys->watched_.path(), keys->store_)));
  keys->watched_.taken();
  return keys;
}

void LiveKeys::look() const {
  const std::lock_guard lock{mutex_};
  if (!watched_.changed()) return;
  const Result<void> reloaded = file_->reload();
  if (!reloaded) {
    // The next look tries again.
    if (complaint_ != reloaded.error().message) {
      complaint_ = reloaded.error().message;
      log::error("the keys stay as they were: " + complaint_);
    }
    return;
  }
  watched_.taken();
  complaint_.clear();
  log::info("the keys were read again");
}

std::optional<KeyStore::Entry> LiveKeys::find(std::string_view access_key,
                                              std::string_view session_token) const {
  look();
  return store_.find(access_key, session_token);
}

Result<KeyStore::Entry> LiveKeys::admin() const {
  look();
  const std::lock_guard lock{mutex_};
  return find_admin(file_->entries());
}

std::vector<KeyStore::Entry> LiveKeys::with_arn(std::string_view arn) const {
  look();
  const std::lock_guard lock{mutex_};
  std::vector<Entry> found;
  for (const Entry& entry : file_->entries()) {
    if (entry.principal.arn == arn) found.push_back(entry);
  }
  return found;
}

}  // namespace atelier::http
