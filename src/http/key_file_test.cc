#include "http/key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"

namespace atelier::http {
namespace {

using ::testing::HasSubstr;

struct KeyFileTest : testing::Test {
  TempFolder folder = *TempFolder::create();
  std::filesystem::path path = folder.path() / "keys.json";
  MemoryKeyStore store;
};

TEST_F(KeyFileTest, IsMadeAtFirstStartForItsOwnerAloneAndReadAtTheNext) {
  const KeyFile made = *KeyFile::open_or_create(path, store);
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(made.entries().front().credentials.access_key.size(), 20u);
  EXPECT_TRUE(made.entries().front().credentials.access_key.starts_with("AKIA"));
  EXPECT_EQ(made.entries().front().credentials.secret_key.size(), 40u);
  EXPECT_EQ(made.entries().front().principal.arn, "arn:aws:iam::000000000000:user/admin");

  MemoryKeyStore other;
  const KeyFile again = *KeyFile::open_or_create(path, other);
  EXPECT_EQ(again.entries().front().credentials.secret_key,
            made.entries().front().credentials.secret_key);
  EXPECT_EQ(other.find(made.entries().front().credentials.access_key)->principal.arn,
            made.entries().front().principal.arn);
}

TEST_F(KeyFileTest, AFileThatOthersCanUseIsRefusedByName) {
  ASSERT_TRUE(KeyFile::open_or_create(path, store));
  for (const mode_t mode : {0640, 0604, 0620, 0601}) {
    chmod(path.c_str(), mode);
    MemoryKeyStore untouched;
    const Error error = KeyFile::open_or_create(path, untouched).error();
    EXPECT_EQ(error.code, Code::kPermissionDenied);
    EXPECT_NE(error.message.find(path.string()), std::string::npos);
    EXPECT_NE(error.message.find("chmod 600"), std::string::npos);
    EXPECT_EQ(untouched.size(), 0u);
  }
}

TEST_F(KeyFileTest, ReloadTakesOverAChangeAndKeepsWhatOthersPutThere) {
  KeyFile file = *KeyFile::open_or_create(path, store);
  const std::string first = file.entries().front().credentials.access_key;
  store.put(make_key("job"));
  ASSERT_TRUE(
      write_file_durably(path,
                         R"({"keys":[{"access_key":"A","secret_key":"s","account":"123456789012",)"
                         R"("expires":"2030-01-01T00:00:00Z"}]})",
                         0600));
  ASSERT_TRUE(file.reload());
  EXPECT_EQ(store.size(), 2u);
  EXPECT_FALSE(store.find(first));
  EXPECT_EQ(store.find("A")->principal.account, "123456789012");
  EXPECT_EQ(store.find("A")->expires, *parse_iso8601("2030-01-01T00:00:00Z"));
  store.remove_expired(*parse_iso8601("2030-01-01T00:00:00Z"));
  EXPECT_FALSE(store.find("A"));
}

TEST_F(KeyFileTest, ABrokenFileIsRefusedByNameAndChangesNothing) {
  KeyFile file = *KeyFile::open_or_create(path, store);
  const std::string first = file.entries().front().credentials.access_key;
  for (const char* text : {"", "{", "{}", R"({"keys":[]})", R"({"keys":[{"access_key":"A"}]})",
                           R"({"keys":[{"access_key":"","secret_key":"s"}]})",
                           R"({"keys":[{"access_key":"A","secret_key":"s","expires":"soon"}]})",
                           R"({"keys":[{"access_key":"A","secret_key":"s"},)"
                           R"({"access_key":"A","secret_key":"t"}]})"}) {
    ASSERT_TRUE(write_file_durably(path, text, 0600));
    const Result<void> reloaded = file.reload();
    ASSERT_FALSE(reloaded) << text;
    EXPECT_NE(reloaded.error().message.find(path.string()), std::string::npos);
    EXPECT_TRUE(store.find(first)) << text;
    EXPECT_EQ(store.size(), 1u);
  }
  MemoryKeyStore other;
  EXPECT_EQ(KeyFile::open(folder.path() / "none", other).error().code, Code::kNotFound);
}

TEST_F(KeyFileTest, WhatMayBeAMisspeltRestrictionIsRefusedByName) {
  const auto why = [&](const std::string& members) {
    EXPECT_TRUE(write_file_durably(
        path, R"({"keys":[{"access_key":"A","secret_key":"s","arn":"arn:ann",)" + members + "}]}",
        0600));
    const auto opened = KeyFile::open(path, store);
    return opened ? std::string{} : opened.error().message;
  };
  const std::string policy =
      R"({"Statement":{"Effect":"Allow","Action":"s3:Get*","Resource":"*"}})";
  EXPECT_EQ(why(R"("policy":)" + policy), "");
  EXPECT_THAT(why(R"("Policy":)" + policy), HasSubstr("keys[0] has 'Policy', which is not known"));
  EXPECT_THAT(why(R"("until":"1999-01-01T00:00:00Z")"), HasSubstr("'until'"));
  EXPECT_THAT(why(R"("expires":0)"), HasSubstr("keys[0].expires must be a string"));
  EXPECT_THAT(why(R"("policy":)" + policy + R"(,"policy":)" + policy),
              HasSubstr("the member 'policy' is there twice"));
  ASSERT_TRUE(write_file_durably(
      path, R"({"keys":[{"access_key":"A","secret_key":"s"}],"policy":{}})", 0600));
  EXPECT_THAT(KeyFile::open(path, store).error().message, HasSubstr("'policy' is not known"));
}

// Jobs are bound to the ARN of who made them: it must say who that is.
TEST_F(KeyFileTest, APrincipalHasOneArnAndAnArnOnePolicy) {
  const auto why = [&](const std::string& keys) {
    EXPECT_TRUE(write_file_durably(
        path, R"({"keys":[{"access_key":"A","secret_key":"s"},)" + keys + "]}", 0600));
    const auto opened = KeyFile::open(path, store);
    return opened ? std::string{} : opened.error().message;
  };
  const std::string reads =
      R"("policy":{"Statement":{"Effect":"Allow","Action":"s3:Get*","Resource":"*"}})";
  const std::string writes =
      R"("policy":{"Statement":{"Effect":"Allow","Action":"s3:Put*","Resource":"*"}})";
  const std::string b = R"({"access_key":"B","secret_key":"s",)";
  const std::string c = R"({"access_key":"C","secret_key":"s",)";
  EXPECT_NE(why(b + reads + "}").find("keys[1] has a policy and no arn"), std::string::npos);
  EXPECT_NE(why(b + R"("arn":"",)" + reads + "}").find("keys[1] has"), std::string::npos);
  EXPECT_NE(why(b + R"("arn":""})").find("keys[1] has an empty arn"), std::string::npos);
  EXPECT_NE(why(b + R"("arn":"arn:ann\nx"})").find("keys[1] has the arn"), std::string::npos);
  EXPECT_NE(why(b + R"("arn":"arn:aws:iam::000000000000:user/admin",)" + reads + "}")
                .find("keys[0] and keys[1] have one arn, 'arn:aws:iam::000000000000:user/admin'"),
            std::string::npos);
  EXPECT_NE(why(b + R"("arn":"arn:ann",)" + reads + "}," + c + R"("arn":"arn:ann",)" + writes + "}")
                .find("keys[1] and keys[2] have one arn, 'arn:ann'"),
            std::string::npos);
  EXPECT_EQ(why(b + R"("arn":"arn:ann",)" + reads + "}," + c + R"("arn":"arn:ann",)" + reads + "}"),
            "")
      << "an old and a new key of one person";
}

TEST(MakeKey, TwoKeysDiffer) {
  EXPECT_NE(make_key("a").credentials.access_key, make_key("a").credentials.access_key);
  EXPECT_NE(make_key("a").credentials.secret_key, make_key("a").credentials.secret_key);
}

}  // namespace
}  // namespace atelier::http
