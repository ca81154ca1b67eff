#include "http/key_file.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/strict_json.h"
#include "http/internal/private_file.h"

namespace atelier::http {
namespace {

constexpr std::size_t kMaxFile = 1 << 20;
constexpr std::size_t kMaxKeys = 10'000;
// Of a key, besides its policy.
constexpr std::array<std::string_view, 7> kMembers = {
    "access_key", "secret_key", "session_token", "account", "arn", "user_id", "expires"};

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

// What an entry's policy is written as; the policies of a file's entries are one grant of one.
std::string_view policy_text(const KeyStore::Entry& entry) {
  return entry.principal.authority.grants().front().front().text();
}

bool is_arn(std::string_view text) {
  return text.starts_with("arn:") && text.size() <= 2048 &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

// A member that is misspelt is often the one that restricts.
Result<void> check_members(const std::filesystem::path& path, const json::value& value,
                           std::size_t index) {
  const json::object* object = value.if_object();
  if (object == nullptr) return wrong(path, fmt::format("keys[{}] must be an object", index));
  for (const auto& [name, member] : *object) {
    if (name == "policy") continue;
    if (std::ranges::find(kMembers, std::string_view{name}) == kMembers.end()) {
      return wrong(path,
                   fmt::format("keys[{}] has '{}', which is not known; a key has policy, {}", index,
                               std::string_view{name}.substr(0, 64), fmt::join(kMembers, ", ")));
    }
    if (!member.is_string()) {
      return wrong(path,
                   fmt::format("keys[{}].{} must be a string", index, std::string_view{name}));
    }
  }
  return {};
}

Result<KeyStore::Entry> parse_entry(const std::filesystem::path& path, const json::value& value,
                                    std::size_t index) {
  TRY(check_members(path, value, index));
  KeyStore::Entry entry;
  entry.credentials.access_key = find_string(value, "access_key").value_or("");
  entry.credentials.secret_key = find_string(value, "secret_key").value_or("");
  if (entry.credentials.access_key.empty() || entry.credentials.secret_key.empty()) {
    return wrong(path, fmt::format("keys[{}] needs access_key and secret_key", index));
  }
  entry.credentials.session_token = find_string(value, "session_token").value_or("");
  entry.principal.access_key = entry.credentials.access_key;
  entry.principal.account = find_string(value, "account").value_or("000000000000");
  const json::value* policy = find_member(value, "policy");
  entry.principal.arn =
      find_string(value, "arn")
          .value_or(policy != nullptr ? ""
                                      : "arn:aws:iam::" + entry.principal.account + ":user/admin");
  if (!is_arn(entry.principal.arn)) {
    return wrong(path,
                 fmt::format("keys[{}] {}: give it an arn that no other principal has, such as "
                             "\"arn:aws:iam::{}:user/NAME\" (jobs are bound to the arn of who made "
                             "them)",
                             index,
                             entry.principal.arn.empty()
                                 ? std::string{policy != nullptr ? "has a policy and no arn"
                                                                 : "has an empty arn"}
                                 : fmt::format("has the arn '{}', which is none",
                                               entry.principal.arn.substr(0, 100)),
                             entry.principal.account));
  }
  entry.principal.user_id = find_string(value, "user_id").value_or(entry.principal.access_key);
  entry.principal.authority = access::Authority::everything();
  if (policy != nullptr) {
    Result<access::Policy> parsed = access::Policy::parse(json::serialize(*policy));
    if (!parsed) {
      return wrong(path, fmt::format("keys[{}].policy: {}", index, parsed.error().message));
    }
    entry.principal.authority = access::Authority{{{*std::move(parsed)}}};
  }
  if (const auto expires = find_string(value, "expires")) {
    const Result<Time> time = parse_iso8601(*expires);
    if (!time) return wrong(path, fmt::format("keys[{}].expires: {}", index, time.error().message));
    entry.expires = *time;
  }
  return entry;
}

Result<std::vector<KeyStore::Entry>> read_entries(const std::filesystem::path& path) {
  const std::string bytes = TRY(internal::read_private(path, kMaxFile));
  const Result<json::value> parsed = parse_strict_json(bytes);
  if (!parsed) return wrong(path, parsed.error().message);
  if (const json::object* file = parsed->if_object(); file != nullptr) {
    for (const auto& [name, member] : *file) {
      if (name != "keys") {
        return wrong(path, fmt::format("'{}' is not known; the file has 'keys' alone",
                                       std::string_view{name}.substr(0, 64)));
      }
    }
  }
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
      if (entries[j].principal.arn == entries[i].principal.arn &&
          policy_text(entries[j]) != policy_text(entries[i])) {
        return wrong(
            path, fmt::format("keys[{}] and keys[{}] have one arn, '{}', and different policies: "
                              "a principal has one; give one of them another arn, or both the "
                              "same policy",
                              j, i, entries[i].principal.arn));
      }
    }
  }
  return entries;
}

std::string to_json(const std::vector<KeyStore::Entry>& entries) {
  json::array keys;
  for (const KeyStore::Entry& entry : entries) {
    json::object key = {{"access_key", entry.credentials.access_key},
                        {"secret_key", entry.credentials.secret_key},
                        {"account", entry.principal.account},
                        {"arn", entry.principal.arn},
                        {"user_id", entry.principal.user_id}};
    if (!entry.credentials.session_token.empty()) {
      key["session_token"] = entry.credentials.session_token;
    }
    if (entry.expires) key["expires"] = format_iso8601(*entry.expires, true);
    if (!is_unrestricted(entry)) key["policy"] = parse_json(policy_text(entry)).value();
    keys.emplace_back(std::move(key));
  }
  return pretty_json(json::object{{"keys", std::move(keys)}}) + "\n";
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
  entry.principal.authority = access::Authority::everything();
  return entry;
}

bool is_unrestricted(const KeyStore::Entry& entry) {
  return policy_text(entry) == access::Policy::everything().text();
}

Result<KeyStore::Entry> find_admin(const std::vector<KeyStore::Entry>& entries) {
  for (const KeyStore::Entry& entry : entries) {
    if (is_unrestricted(entry) && !entry.expires) return entry;
  }
  return Error{Code::kFailedPrecondition,
               "no key without a policy and an expiry is left: one has to remain"};
}

Result<void> change_keys(const std::filesystem::path& path,
                         const std::function<Result<void>(std::vector<KeyStore::Entry>&)>& edit) {
  std::filesystem::path lock_path = path;
  lock_path += ".lock";
  const UniqueFd lock = TRY(lock_file(lock_path));
  std::vector<KeyStore::Entry> entries = TRY(read_entries(path));
  TRY(edit(entries));
  TRY(find_admin(entries));
  if (entries.size() > kMaxKeys) return wrong(path, fmt::format("more than {} keys", kMaxKeys));
  const std::string text = to_json(entries);
  if (text.size() > kMaxFile) return wrong(path, fmt::format("larger than {} bytes", kMaxFile));
  return write_file_durably(path, text, 0600);
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
  const Result<void> made = create_file_durably(path, to_json({make_key("admin")}), 0600);
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
