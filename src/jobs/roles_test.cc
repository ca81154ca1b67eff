#include "jobs/roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/no_descriptors.h"

namespace atelier::jobs {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kRoles = R"({"roles": {
  "reader": {"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}},
  "default": {"Statement": {"Effect": "Allow", "Action": "logs:*", "Resource": "*"}}}})";

TEST(Roles, GrantWhatTheFileSaysAsItIsNow) {
  const TempFolder folder = *TempFolder::create();
  const auto path = folder.path() / "roles.json";
  const std::unique_ptr<Roles> roles = *Roles::open(path, "000000000000");
  EXPECT_TRUE(roles->grants_of("arn:aws:iam::000000000000:role/reader").empty());
  ASSERT_TRUE(replace_file(path, kRoles));
  EXPECT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/reader").size(), 2u);
  EXPECT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/other").size(), 1u);
  EXPECT_EQ(roles->grants_of("").size(), 1u);
  ASSERT_TRUE(replace_file(path, "{"));
  EXPECT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/reader").size(), 2u)
      << "a file that cannot be read changes nothing";
  std::filesystem::remove(path);
  EXPECT_TRUE(roles->grants_of("arn:aws:iam::000000000000:role/reader").empty());
}

// iam:PassRole is asked for the whole ARN: what it says of one role must not give another's grants.
TEST(Roles, AreKnownByAccountPathAndNameAsTheyArePassed) {
  const TempFolder folder = *TempFolder::create();
  const auto path = folder.path() / "roles.json";
  ASSERT_TRUE(replace_file(path, R"({"roles": {
    "admin": {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}},
    "team/reader": {"Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}}})"));
  const std::unique_ptr<Roles> roles = *Roles::open(path, "000000000000");
  EXPECT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/admin").size(), 1u);
  EXPECT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/team/reader").size(), 1u);
  for (const char* other :
       {"arn:aws:iam::000000000000:role/team-ann/admin", "arn:aws:iam::000000000000:role//admin",
        "arn:aws:iam::111111111111:role/admin", "arn:aws-cn:iam::000000000000:role/admin",
        "arn:aws:iam::000000000000:role/reader", "arn:aws:sts::000000000000:assumed-role/admin/job",
        "arn:aws:iam::000000000000:role/x:role/admin", "admin", ""}) {
    EXPECT_TRUE(roles->grants_of(other).empty()) << other;
  }
}

TEST(Roles, AChangeThatCouldNotBeReadIsReadLater) {
  const TempFolder folder = *TempFolder::create();
  const auto path = folder.path() / "roles.json";
  ASSERT_TRUE(replace_file(path, kRoles));
  const std::unique_ptr<Roles> roles = *Roles::open(path, "000000000000");
  ASSERT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/reader").size(), 2u);
  ASSERT_TRUE(replace_file(path, R"({"roles": {}})"));
  {
    const NoDescriptors full;
    EXPECT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/reader").size(), 2u);
  }
  EXPECT_TRUE(roles->grants_of("arn:aws:iam::000000000000:role/reader").empty());
}

TEST(Roles, AFileThatOthersMayChangeGrantsNothing) {
  const TempFolder folder = *TempFolder::create();
  const auto path = folder.path() / "roles.json";
  ASSERT_TRUE(replace_file(path, kRoles));
  for (const int mode : {0666, 0620, 0602}) {
    std::filesystem::permissions(path, static_cast<std::filesystem::perms>(mode));
    const auto refused = Roles::open(path, "000000000000");
    ASSERT_FALSE(refused) << mode;
    EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
    EXPECT_THAT(refused.error().message, HasSubstr("run: chmod go-w"));
  }
  std::filesystem::permissions(path, std::filesystem::perms{0644});
  const std::unique_ptr<Roles> roles = *Roles::open(path, "000000000000");
  ASSERT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/reader").size(), 2u);
  ASSERT_TRUE(replace_file(path, R"({"roles": {"reader": {"Statement": {"Effect": "Allow",
                                     "Action": "*", "Resource": "*"}}}})"));
  std::filesystem::permissions(path, std::filesystem::perms{0666});
  EXPECT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/reader").size(), 2u)
      << "what anybody could have written changes nothing";
}

TEST(Roles, AWrongFileIsRefusedByRole) {
  EXPECT_THAT(parse_roles(R"({"roles":{"r":{"Statement":[]}}})").error().message,
              HasSubstr("role 'r': Statement"));
  EXPECT_THAT(parse_roles(R"({"roles":{"r":{},"r":{}}})").error().message,
              HasSubstr("'r' is there twice"));
  EXPECT_FALSE(parse_roles("{}"));
  EXPECT_FALSE(parse_roles(R"({"roles":{},"more":1})"));
  EXPECT_FALSE(parse_roles(std::string((1 << 20) + 1, ' ')));
}

}  // namespace
}  // namespace atelier::jobs
