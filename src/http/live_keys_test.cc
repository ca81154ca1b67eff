#include "http/live_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/no_descriptors.h"

namespace atelier::http {
namespace {

struct LiveKeysTest : testing::Test {
  TempFolder folder = *TempFolder::create();
  std::filesystem::path path = folder.path() / "keys.json";
  std::unique_ptr<LiveKeys> keys = *LiveKeys::open(path);
};

KeyStore::Entry restricted(const std::string& name) {
  KeyStore::Entry entry = make_key(name);
  entry.principal.authority = access::Authority{
      {{access::Policy::parse(
            R"({"Statement":{"Effect":"Allow","Action":"s3:Get*","Resource":"*"}})")
            .value()}}};
  return entry;
}

TEST_F(LiveKeysTest, AChangeOfTheFileCountsFromTheNextRequestOn) {
  const KeyStore::Entry ann = restricted("ann");
  const std::string ann_key = ann.credentials.access_key;
  EXPECT_FALSE(keys->find(ann_key));
  ASSERT_TRUE(change_keys(path, [&](auto& entries) -> Result<void> {
    entries.push_back(ann);
    return {};
  }));
  const auto found = keys->find(ann_key);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->credentials.secret_key, ann.credentials.secret_key);
  EXPECT_EQ(found->principal.authority.decide({"s3:GetObject", "x"}), access::Decision::kAllowed);
  EXPECT_EQ(found->principal.authority.decide({"s3:PutObject", "x"}),
            access::Decision::kImplicitDeny);
  EXPECT_EQ(keys->with_arn(ann.principal.arn).size(), 1u);
  ASSERT_TRUE(change_keys(path, [&](auto& entries) -> Result<void> {
    std::erase_if(entries, [&](const auto& entry) { return !is_unrestricted(entry); });
    return {};
  }));
  EXPECT_FALSE(keys->find(ann_key));
  EXPECT_TRUE(keys->with_arn(ann.principal.arn).empty());
}

TEST_F(LiveKeysTest, ABrokenFileLeavesTheKeysAsTheyWere) {
  const std::string admin = keys->admin()->credentials.access_key;
  ASSERT_TRUE(write_file_durably(path, "{", 0600));
  EXPECT_TRUE(keys->find(admin));
  ASSERT_TRUE(write_file_durably(
      path, R"({"keys":[{"access_key":"A","secret_key":"s","policy":{"Statement":[]}}]})", 0600));
  EXPECT_TRUE(keys->find(admin));
  EXPECT_FALSE(keys->find("A")) << "a key whose policy cannot be read is no key without one";
}

TEST_F(LiveKeysTest, ARevocationThatCouldNotBeReadIsReadLater) {
  const KeyStore::Entry ann = restricted("ann");
  const auto change = [&](bool add) {
    return change_keys(path, [&](auto& entries) -> Result<void> {
      if (add) entries.push_back(ann);
      if (!add) entries.pop_back();
      return {};
    });
  };
  ASSERT_TRUE(change(true));
  ASSERT_TRUE(keys->find(ann.credentials.access_key));
  ASSERT_TRUE(change(false));
  {
    const NoDescriptors full;
    EXPECT_TRUE(keys->find(ann.credentials.access_key)) << "nobody could read it yet";
  }
  EXPECT_FALSE(keys->find(ann.credentials.access_key));
}

TEST_F(LiveKeysTest, TheLastKeyThatMayDoEverythingStays) {
  const Result<void> emptied = change_keys(path, [](auto& entries) -> Result<void> {
    entries = {restricted("ann")};
    return {};
  });
  ASSERT_FALSE(emptied);
  EXPECT_EQ(emptied.error().code, Code::kFailedPrecondition);
  EXPECT_TRUE(keys->admin());
}

}  // namespace
}  // namespace atelier::http
