// The file that holds a server's keys: made at its first start, readable by its owner alone.
//
//   MemoryKeyStore keys;
//   KeyFile file = TRY(KeyFile::open_or_create(data_dir / "keys.json", keys));
//   TRY(find_admin(file.entries())).credentials  // for `atelier env`
//
// The file is JSON: {"keys": [{"access_key", "secret_key", "session_token", "account", "arn",
// "user_id", "expires", "policy"}]}, of which the first two are required; a key without a policy
// may do everything, and one with a policy needs an arn of its own: several keys of one arn (after
// a rotation) have the same policy. An operator may change it by hand; reload() takes the change
// over, or leaves everything as it was and says what is wrong. A server reads it by live_keys.h.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/memory_key_store.h"

namespace atelier::http {

// A new long-lived key with random parts, for `user` of `account`.
KeyStore::Entry make_key(std::string_view user, std::string_view account = "000000000000");

// Whether a key of the file may do everything.
bool is_unrestricted(const KeyStore::Entry& entry);
// The first key that may do everything and does not expire; kFailedPrecondition if there is none.
Result<KeyStore::Entry> find_admin(const std::vector<KeyStore::Entry>& entries);

// Reads the file, lets `edit` change the keys, and replaces the file durably; one caller at a time
// among all processes (kFailedPrecondition for another). A change that leaves no key that may do
// everything is refused.
Result<void> change_keys(const std::filesystem::path& path,
                         const std::function<Result<void>(std::vector<KeyStore::Entry>&)>& edit);

class KeyFile {
 public:
  // Puts the keys of the file into `store`, which must outlive this. A file that others may read or
  // write, or that belongs to another user, is kPermissionDenied by name.
  static Result<KeyFile> open(std::filesystem::path path, MemoryKeyStore& store);
  // The same, but makes the file, with one key for "admin" and mode 0600, if there is none.
  static Result<KeyFile> open_or_create(std::filesystem::path path, MemoryKeyStore& store);

  // Reads the file again. Keys that it no longer has leave the store; those that others put there
  // stay.
  Result<void> reload();

  [[nodiscard]] const std::vector<KeyStore::Entry>& entries() const { return entries_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  KeyFile(std::filesystem::path path, MemoryKeyStore& store)
      : path_(std::move(path)), store_(&store) {}

  std::filesystem::path path_;
  MemoryKeyStore* store_;
  std::vector<KeyStore::Entry> entries_;  // at least one
};

}  // namespace atelier::http
