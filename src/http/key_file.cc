#include "http/key_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/json.h"

namespace atelier::http {
namespace {

constexpr std::size_t kMaxFile = 1 << 20;
constexpr std::size_t kMaxKeys = 10'000;

// "AKIA" and 16 of the letters that AWS uses: clients recognise keys by that form.
std::string random_access_key() {
  static constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  const std::string raw = from_hex(random_id(16)).value_or({});
  std::string key = "AKIA";
  for (const char c : raw) key += kLetters[static_cast<unsigned char>(c) % kLetters.size()];
  return key;
}

Error wrong(const std::filesystem::path& path, std::string_view what) {
  return Error{Code::kInvalidArgument, fmt::format("key file '{}': {}", path.string(), what)};
}

// The bytes of a file that only its owner can read; what is checked is what is read.
Result<std::string> read_private(const std::filesystem::path& path) {
  const UniqueFd fd = TRY(open_file(path, O_RDONLY | O_NOFOLLOW));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) {
    return error_from_errno(fmt::format("stat '{}'", path.string()), errno);
  }
  if (!S_ISREG(info.st_mode)) return wrong(path, "not a regular file");
  if ((info.st_mode & 077) != 0) {
    return Error{Code::kPermissionDenied,
                 fmt::format("key file '{}' can be used by others (mode {:04o}); run: chmod 600 {}",
                             path.string(), info.st_mode & 07777, path.string())};
  }
  if (info.st_uid != geteuid()) {
    return Error{Code::kPermissionDenied, fmt::format("key file '{}' belongs to user {}, not to {}",
                                                      path.string(), info.st_uid, geteuid())};
  }
  if (static_cast<std::size_t>(info.st_size) > kMaxFile) {
    return wrong(path, fmt::format("larger than {} bytes", kMaxFile));
  }
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  const ssize_t got = pread(fd.get(), bytes.data(), bytes.size(), 0);
  if (got != info.st_size) return error_from_errno(fmt::format("read '{}'", path.string()), EIO);
  return bytes;
}

Result<KeyStore::Entry> parse_entry(const std::filesystem::path& path, const json::value& value,
                                    std::size_t index) {
  KeyStore::Entry entry;
  entry.credentials.access_key = find_string(value, "access_key").value_or("");
  entry.credentials.secret_key = find_string(value, "secret_key").value_or("");
  if (entry.credentials.access_key.empty() || entry.credentials.secret_key.empty()) {
    return wrong(path, fmt::format("keys[{}] needs access_key and secret_key", index));
  }
  entry.credentials.session_token = find_string(value, "session_token").value_or("");
  entry.principal.access_key = entry.credentials.access_key;
  entry.principal.account = find_string(value, "account").value_or("000000000000");
  entry.principal.arn =
      find_string(value, "arn").value_or("arn:aws:iam::" + entry.principal.account + ":user/admin");
  entry.principal.user_id = find_string(value, "user_id").value_or(entry.principal.access_key);
  if (const auto expires = find_string(value, "expires")) {
    const Result<Time> time = parse_iso8601(*expires);
    if (!time) return wrong(path, fmt::format("keys[{}].expires: {}", index, time.error().message));
    entry.expires = *time;
  }
  return entry;
}

Result<std::vector<KeyStore::Entry>> read_entries(const std::filesystem::path& path) {
  const std::string bytes = TRY(read_private(path));
  const Result<json::value> parsed = parse_json(bytes);
  if (!parsed) return wrong(path, parsed.error().message);
  const json::array* keys = find_array(*parsed, "keys");
  if (keys == nullptr || keys->empty() || keys->size() > kMaxKeys) {
    return wrong(path, fmt::format("'keys' must be a list of 1 to {} keys", kMaxKeys));
  }
  std::vector<KeyStore::Entry> entries;
  for (std::size_t i = 0; i < keys->size(); ++i) {
    entries.push_back(TRY(parse_entry(path, (*keys)[i], i)));
    for (std::size_t j = 0; j < i; ++j) {
      if (entries[j].credentials.access_key == entries[i].credentials.access_key) {
        return wrong(path, fmt::format("keys[{}] repeats the access key of keys[{}]", i, j));
      }
    }
  }
  return entries;
}

std::string to_json(const KeyStore::Entry& entry) {
  const json::value value = {{"keys",
                              {{{"access_key", entry.credentials.access_key},
                                {"secret_key", entry.credentials.secret_key},
                                {"account", entry.principal.account},
                                {"arn", entry.principal.arn},
                                {"user_id", entry.principal.user_id}}}}};
  return pretty_json(value) + "\n";
}

}  // namespace

KeyStore::Entry make_key(std::string_view user, std::string_view account) {
  KeyStore::Entry entry;
  entry.credentials.access_key = random_access_key();
  entry.credentials.secret_key = random_token(40);
  entry.principal.access_key = entry.credentials.access_key;
  entry.principal.account = account;
  entry.principal.arn = fmt::format("arn:aws:iam::{}:user/{}", account, user);
  entry.principal.user_id = "AIDA" + entry.credentials.access_key.substr(4);
  return entry;
}

Result<KeyFile> KeyFile::open(std::filesystem::path path, MemoryKeyStore& store) {
  KeyFile file{std::move(path), store};
  TRY(file.reload());
  return file;
}

Result<KeyFile> KeyFile::open_or_create(std::filesystem::path path, MemoryKeyStore& store) {
  // The usual start finds them, and need not wait for a disk.
  Result<KeyFile> there = open(path, store);
  if (there || there.error().code != Code::kNotFound) return there;
  const Result<void> made = create_file_durably(path, to_json(make_key("admin")), 0600);
  if (!made && made.error().code != Code::kAlreadyExists) return made.error();
  return open(std::move(path), store);
}

Result<void> KeyFile::reload() {
  std::vector<KeyStore::Entry> entries = TRY(read_entries(path_));
  for (const KeyStore::Entry& entry : entries) store_->put(entry);
  for (const KeyStore::Entry& old : entries_) {
    const bool kept = std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
      return entry.credentials.access_key == old.credentials.access_key;
    });
    if (!kept) store_->remove(old.credentials.access_key);
  }
  entries_ = std::move(entries);
  return {};
}

}  // namespace atelier::http
