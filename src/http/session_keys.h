// Short-lived keys that need no storing: everything about one is in its session token, which a
// server's secret seals, and the key itself is derived from the token. So a key outlives a server
// that is killed, and one that was issued before the kill is known after it.
//
//   const SessionKeys sessions = TRY(SessionKeys::open_or_create(data_dir / "sessions.secret"));
//   const Credentials key = sessions.issue({"job-1", 1796022355000, now + 1h});
//   sessions.find(key.access_key, key.session_token)->subject == "job-1"
//
// What the subject may do, and whether there still is one, is for the caller to know
// (SessionKeyStore). docs/decisions/keys.md says why it is built this way.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/sigv4.h"

namespace atelier::http {

struct SessionClaims {
  std::string subject;          // of [A-Za-z0-9-], at most 255: a job's name
  std::int64_t generation = 0;  // which of that name: its creation in ms since 1970
  Time expires{};
  bool operator==(const SessionClaims&) const = default;
};

class SessionKeys {
 public:
  // A file of mode 0600 with a random secret; whoever reads it can make every key. Removing it ends
  // all sessions.
  static Result<SessionKeys> open_or_create(const std::filesystem::path& path);
  explicit SessionKeys(std::string secret) : secret_(std::move(secret)) {}

  [[nodiscard]] Credentials issue(const SessionClaims& claims) const;
  // The claims, if the token is one that this secret sealed and the key is the token's; expired or
  // not.
  [[nodiscard]] std::optional<SessionClaims> find(std::string_view access_key,
                                                  std::string_view session_token) const;
  // The key of a token that find() found right.
  [[nodiscard]] Credentials derive(std::string_view session_token) const;

  // A password for fetching keys again and again (AWS_CONTAINER_AUTHORIZATION_TOKEN). It is no key:
  // nothing can be signed with it.
  [[nodiscard]] std::string issue_ticket(const SessionClaims& claims) const;
  [[nodiscard]] std::optional<SessionClaims> open_ticket(std::string_view ticket) const;

 private:
  [[nodiscard]] std::string seal(std::string_view purpose, const SessionClaims& claims) const;
  [[nodiscard]] std::optional<SessionClaims> open(std::string_view purpose,
                                                  std::string_view token) const;
  std::string secret_;
};

// Keys of sessions beside those of another store. Its references must outlive it.
class SessionKeyStore final : public KeyStore {
 public:
  // Who a session is now; nothing when it is over. Called from many threads, for every request.
  using Resolve = std::function<std::optional<Principal>(const SessionClaims&)>;
  SessionKeyStore(const KeyStore& others, const SessionKeys& sessions, Resolve resolve)
      : others_(others), sessions_(sessions), resolve_(std::move(resolve)) {}
  [[nodiscard]] std::optional<Entry> find(std::string_view access_key,
                                          std::string_view session_token) const override;
  // A key for whoever holds a ticket, valid for `life`; kUnauthenticated when the ticket is not
  // right, or its session is over.
  [[nodiscard]] Result<Entry> exchange(std::string_view ticket, Time now,
                                       std::chrono::seconds life) const;

 private:
  const KeyStore& others_;
  const SessionKeys& sessions_;
  Resolve resolve_;
};

}  // namespace atelier::http
