#include "http/session_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "http/memory_key_store.h"

namespace atelier::http {
namespace {

const Time kNow = *parse_iso8601("2026-11-30T07:05:55Z");
const SessionClaims kClaims{"job-1", 1'796'022'355'000, kNow + std::chrono::hours{1}};

RequestHead signed_with(const Credentials& credentials, Time now = kNow) {
  RequestHead head;
  head.method = "GET";
  head.target = "/bucket/key";
  head.headers = {{"Host", "127.0.0.1"}};
  sign(head.method, head.target, head.headers, "UNSIGNED-PAYLOAD", credentials, "us-west-2", "s3",
       now);
  return head;
}

struct SessionKeysTest : testing::Test {
  std::string why(const Result<Verified>& verified) {
    return verified ? "verified"
                    : verified.error().message.substr(0, verified.error().message.find(':'));
  }

  MemoryKeyStore others;
  SessionKeys sessions{"secret"};
  bool over = false;
  SessionKeyStore store{others, sessions, [this](const SessionClaims& claims) {
                          EXPECT_EQ(claims.subject, kClaims.subject);
                          std::optional<Principal> principal;
                          if (!over) principal = Principal{.access_key = "", .arn = "arn:job"};
                          return principal;
                        }};
};

TEST_F(SessionKeysTest, AKeyIsKnownByEveryServerThatHasTheSecret) {
  const Credentials key = sessions.issue(kClaims);
  EXPECT_TRUE(key.access_key.starts_with("ASIA"));
  EXPECT_EQ(key.access_key.size(), 20u);
  EXPECT_EQ(key.secret_key.size(), 40u);
  EXPECT_EQ(SessionKeys{"secret"}.find(key.access_key, key.session_token), kClaims);
  EXPECT_FALSE(SessionKeys{"another"}.find(key.access_key, key.session_token));
  const Result<Verified> verified = verify(signed_with(key), store, kNow);
  ASSERT_TRUE(verified) << verified.error().message;
  EXPECT_EQ(verified->principal.arn, "arn:job");
  EXPECT_EQ(verified->principal.access_key, key.access_key);
}

TEST_F(SessionKeysTest, AKeyEndsWithItsTimeAndWithItsSession) {
  const Credentials key = sessions.issue(kClaims);
  EXPECT_EQ(why(verify(signed_with(key, kClaims.expires), store, kClaims.expires)), "ExpiredToken");
  over = true;
  EXPECT_EQ(why(verify(signed_with(key), store, kNow)), "ExpiredToken");
}

TEST_F(SessionKeysTest, WhatWasChangedIsRefused) {
  const Credentials key = sessions.issue(kClaims);
  // Another job's name or a later end under the same seal.
  const std::string raw = *from_base64(key.session_token);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    std::string other = raw;
    other[i] = static_cast<char>(other[i] ^ 1);
    Credentials changed = key;
    changed.session_token = to_base64(other);
    EXPECT_NE(why(verify(signed_with(changed), store, kNow)), "verified") << i;
  }
  Credentials changed = key;
  changed.session_token += "=";
  EXPECT_NE(why(verify(signed_with(changed), store, kNow)), "verified");
  changed = key;
  changed.session_token.clear();
  EXPECT_EQ(why(verify(signed_with(changed), store, kNow)), "InvalidAccessKeyId");
  changed = key;
  changed.secret_key = "guessed";
  EXPECT_EQ(why(verify(signed_with(changed), store, kNow)), "SignatureDoesNotMatch");
  // The key of one token with another.
  changed = key;
  changed.session_token = sessions.issue({"job-2", 1, kClaims.expires}).session_token;
  EXPECT_NE(why(verify(signed_with(changed), store, kNow)), "verified");
}

TEST_F(SessionKeysTest, ATicketIsGoodForKeysAndNothingElse) {
  const std::string ticket = sessions.issue_ticket(kClaims);
  const auto entry = store.exchange(ticket, kNow, std::chrono::minutes{10});
  ASSERT_TRUE(entry) << entry.error().message;
  EXPECT_EQ(entry->expires, kNow + std::chrono::minutes{10});
  EXPECT_EQ(why(verify(signed_with(entry->credentials), store, kNow)), "verified");
  // Neither is taken for the other.
  EXPECT_FALSE(sessions.find(sessions.derive(ticket).access_key, ticket));
  EXPECT_FALSE(store.exchange(entry->credentials.session_token, kNow, std::chrono::minutes{10}));
  EXPECT_FALSE(store.exchange("", kNow, std::chrono::minutes{10}));
  EXPECT_FALSE(store.exchange(ticket, kClaims.expires, std::chrono::minutes{10}));
  over = true;
  const auto ended = store.exchange(ticket, kNow, std::chrono::minutes{10});
  ASSERT_FALSE(ended);
  EXPECT_NE(ended.error().message.find("'job-1' has ended"), std::string::npos);
}

TEST(SessionSecret, IsMadeOnceForItsOwnerAlone) {
  const TempFolder folder = *TempFolder::create();
  const auto path = folder.path() / "sessions.secret";
  const Credentials key = SessionKeys::open_or_create(path).value().issue(kClaims);
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_TRUE(SessionKeys::open_or_create(path).value().find(key.access_key, key.session_token));
  chmod(path.c_str(), 0644);
  EXPECT_EQ(SessionKeys::open_or_create(path).error().code, Code::kPermissionDenied);
  ASSERT_TRUE(write_file_durably(path, "00", 0600));
  EXPECT_EQ(SessionKeys::open_or_create(path).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace atelier::http
