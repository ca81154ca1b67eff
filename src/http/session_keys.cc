#include "http/session_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "http/internal/private_file.h"

namespace atelier::http {
namespace {

constexpr std::size_t kMaxToken = 1024;
constexpr std::size_t kMaxSubject = 255;
constexpr std::size_t kMacBytes = 32;
constexpr std::size_t kSecretBytes = 32;
constexpr std::string_view kVersion = "a1";
constexpr std::string_view kSession = "session";
constexpr std::string_view kTicket = "ticket";

bool is_subject(std::string_view text) {
  return !text.empty() && text.size() <= kMaxSubject && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// "a1 SUBJECT GENERATION EXPIRES", with times in ms.
std::string text_of(const SessionClaims& claims) {
  return fmt::format("{} {} {} {}", kVersion, claims.subject, claims.generation,
                     to_epoch_milliseconds(claims.expires));
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<SessionClaims> parse_claims(std::string_view text) {
  std::array<std::string_view, 4> words;
  for (std::string_view& word : words) {
    word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  const auto generation = number(words[2]);
  const auto expires = number(words[3]);
  if (words[0] != kVersion || !is_subject(words[1]) || !generation || !expires || !text.empty()) {
    return std::nullopt;
  }
  return SessionClaims{std::string{words[1]}, *generation, from_epoch_milliseconds(*expires)};
}

// "ASIA", by which clients and people know keys with a token, and 16 letters.
std::string access_key_of(std::string_view raw) {
  static constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  std::string key = "ASIA";
  for (std::size_t i = 0; i < 16; ++i) {
    key += kLetters[static_cast<unsigned char>(raw[i]) % kLetters.size()];
  }
  return key;
}

}  // namespace

Result<SessionKeys> SessionKeys::open_or_create(const std::filesystem::path& path) {
  Result<std::string> text = internal::read_private(path, 4096);
  if (!text && text.error().code == Code::kNotFound) {
    const Result<void> made = create_file_durably(path, random_id(kSecretBytes) + "\n", 0600);
    if (!made && made.error().code != Code::kAlreadyExists) return made.error();
    text = internal::read_private(path, 4096);
  }
  if (!text) return text.error();
  while (text->ends_with('\n')) text->pop_back();
  Result<std::string> secret = from_hex(*text);
  if (!secret || secret->size() < kSecretBytes) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("'{}' does not hold {} bytes in hexadecimal; remove it to have another "
                    "made (keys of running jobs end with it)",
                    path.string(), kSecretBytes)};
  }
  return SessionKeys{*std::move(secret)};
}

std::string SessionKeys::seal(std::string_view purpose, const SessionClaims& claims) const {
  ATELIER_CHECK(is_subject(claims.subject), "a session's subject is a job's name");
  const std::string text = text_of(claims);
  return to_base64(hmac_sha256(secret_, fmt::format("seal {} {}", purpose, text)) + text);
}

std::optional<SessionClaims> SessionKeys::open(std::string_view purpose,
                                               std::string_view token) const {
  if (token.size() > kMaxToken) return std::nullopt;
  const Result<std::string> raw = from_base64(token);
  // One token has one spelling, so that what is derived from it is one as well.
  if (!raw || raw->size() <= kMacBytes || to_base64(*raw) != token) return std::nullopt;
  const std::string_view text = std::string_view{*raw}.substr(kMacBytes);
  const std::string right = hmac_sha256(secret_, fmt::format("seal {} {}", purpose, text));
  if (!equal_in_constant_time(right, std::string_view{*raw}.substr(0, kMacBytes))) {
    return std::nullopt;
  }
  return parse_claims(text);
}

Credentials SessionKeys::derive(std::string_view session_token) const {
  return {
      access_key_of(hmac_sha256(secret_, fmt::format("access-key {}", session_token))),
      to_base64(hmac_sha256(secret_, fmt::format("secret-key {}", session_token))).substr(0, 40),
      std::string{session_token}};
}

Credentials SessionKeys::issue(const SessionClaims& claims) const {
  return derive(seal(kSession, claims));
}

std::optional<SessionClaims> SessionKeys::find(std::string_view access_key,
                                               std::string_view session_token) const {
  std::optional<SessionClaims> claims = open(kSession, session_token);
  if (!claims || derive(session_token).access_key != access_key) return std::nullopt;
  return claims;
}

std::string SessionKeys::issue_ticket(const SessionClaims& claims) const {
  return seal(kTicket, claims);
}

std::optional<SessionClaims> SessionKeys::open_ticket(std::string_view ticket) const {
  return open(kTicket, ticket);
}

std::optional<KeyStore::Entry> SessionKeyStore::find(std::string_view access_key,
                                                     std::string_view session_token) const {
  if (session_token.empty() || !access_key.starts_with("ASIA")) {
    return others_.find(access_key, session_token);
  }
  const std::optional<SessionClaims> claims = sessions_.find(access_key, session_token);
  if (!claims) return others_.find(access_key, session_token);
  Entry entry;
  entry.credentials = sessions_.derive(session_token);
  std::optional<Principal> principal = resolve_(*claims);
  if (!principal) {
    entry.expires = Time{};  // its session is over: the key has expired, whatever its date
    return entry;
  }
  entry.principal = *std::move(principal);
  entry.principal.access_key = entry.credentials.access_key;
  entry.expires = claims->expires;
  return entry;
}

Result<KeyStore::Entry> SessionKeyStore::exchange(std::string_view ticket, Time now,
                                                  std::chrono::seconds life) const {
  std::optional<SessionClaims> claims = sessions_.open_ticket(ticket);
  if (!claims || claims->expires <= now) {
    return Error{Code::kUnauthenticated,
                 "the authorization token is not one of this server's, or has expired"};
  }
  claims->expires = std::min(claims->expires, Time{now + life});
  const Credentials credentials = sessions_.issue(*claims);
  std::optional<Entry> entry = find(credentials.access_key, credentials.session_token);
  if (!entry || entry->principal.access_key.empty()) {
    return Error{Code::kUnauthenticated,
                 fmt::format("the job '{}' has ended, and its keys with it", claims->subject)};
  }
  return *std::move(entry);
}

}  // namespace atelier::http
