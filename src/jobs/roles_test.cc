#include "jobs/roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace atelier::jobs {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kRoles = R"({"roles": {
  "reader": {"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}},
  "default": {"Statement": {"Effect": "Allow", "Action": "logs:*", "Resource": "*"}}}})";

TEST(Roles, GrantWhatTheFileSaysAsItIsNow) {
  const TempFolder folder = *TempFolder::create();
  const auto path = folder.path() / "roles.json";
  const std::unique_ptr<Roles> roles = *Roles::open(path);
  EXPECT_TRUE(roles->grants_of("arn:aws:iam::000000000000:role/reader").empty());
  ASSERT_TRUE(replace_file(path, kRoles));
  EXPECT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/service-role/reader").size(), 2u);
  EXPECT_EQ(roles->grants_of("arn:aws:sts::000000000000:assumed-role/reader/job-1").size(), 2u);
  EXPECT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/other").size(), 1u);
  EXPECT_EQ(roles->grants_of("").size(), 1u);
  ASSERT_TRUE(replace_file(path, "{"));
  EXPECT_EQ(roles->grants_of("arn:aws:iam::000000000000:role/reader").size(), 2u)
      << "a file that cannot be read changes nothing";
  std::filesystem::remove(path);
  EXPECT_TRUE(roles->grants_of("arn:aws:iam::000000000000:role/reader").empty());
}

TEST(Roles, AWrongFileIsRefusedByRole) {
  EXPECT_THAT(parse_roles(R"({"roles":{"r":{"Statement":[]}}})").error().message,
              HasSubstr("role 'r': Statement"));
  EXPECT_FALSE(parse_roles("{}"));
  EXPECT_FALSE(parse_roles(R"({"roles":{},"more":1})"));
  EXPECT_FALSE(parse_roles(std::string((1 << 20) + 1, ' ')));
}

}  // namespace
}  // namespace atelier::jobs
