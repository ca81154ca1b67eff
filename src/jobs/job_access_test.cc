// What a job's key may do while the job runs, and that it ends with it.
#include "jobs/job_access.h"

#include <gtest/gtest.h>

#include "access/resources.h"
#include "base/file.h"
#include "jobs/testing.h"

namespace atelier::jobs {
namespace {

using access::Decision;
using testing::request_for;
using testing::wait_for_end;

access::Policy policy(std::string_view statement) {
  return access::Policy::parse(R"({"Statement":)" + std::string{statement} + "}").value();
}

class JobAccessTest : public ::testing::Test {
 protected:
  void create(const std::string& name, const std::string& created_by) {
    const auto made = service_->create({request_for({.name = name}), "", created_by});
    ASSERT_TRUE(made) << made.error().message;
    claims_ = {name, to_epoch_milliseconds(service_->describe(name).value().created), {}};
  }
  Decision decide(std::string_view action, const std::string& resource) {
    const auto principal = access_.principal_of(claims_);
    if (!principal) return Decision::kExplicitDeny;
    return principal->authority.decide({action, resource});
  }
  Decision write() { return decide("s3:PutObject", "arn:aws:s3:::out/prefix/a/output/x"); }

  TempFolder folder_ = *TempFolder::create();
  std::filesystem::path roles_path_ = folder_.path() / "roles.json";
  // Not running yet: its jobs have keys as soon as they are there.
  std::unique_ptr<Service> service_ =
      Service::open(testing::options_for(folder_.path() / "jobs", FAKE_AGENT), system_clock())
          .value();
  std::unique_ptr<Roles> roles_ = *Roles::open(roles_path_);
  std::map<std::string, std::vector<access::Authority::Grant>> creators_{
      {"arn:admin", access::Authority::everything().grants()}};
  JobAccess access_{*service_, *roles_, [this](const std::string& arn) { return creators_[arn]; },
                    "000000000000"};
  http::SessionClaims claims_;
};

TEST_F(JobAccessTest, AJobHasItsOwnPathsAndNoOther) {
  create("a", "arn:admin");
  EXPECT_EQ(write(), Decision::kAllowed);
  EXPECT_EQ(decide("s3:PutObject", "arn:aws:s3:::out/prefix/b/output/x"), Decision::kImplicitDeny);
  EXPECT_EQ(access_.principal_of(claims_)->arn, "arn:aws:sts::000000000000:assumed-role/r/a");
}

TEST_F(JobAccessTest, ItReachesNoFurtherThanItsCreatorDoesNow) {
  create("a", "arn:ann");
  EXPECT_EQ(write(), Decision::kImplicitDeny) << "ann is nobody";
  creators_["arn:ann"] = {
      {policy(R"({"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::out/*"})")}};
  EXPECT_EQ(write(), Decision::kAllowed);
  creators_["arn:ann"] = {
      {policy(R"({"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::mine/*"})")}};
  EXPECT_EQ(write(), Decision::kImplicitDeny);
}

TEST_F(JobAccessTest, ARoleAddsWhatTheOperatorGrantsIt) {
  create("a", "arn:admin");
  EXPECT_EQ(decide("s3:GetObject", "arn:aws:s3:::shared/x"), Decision::kImplicitDeny);
  ASSERT_TRUE(replace_file(roles_path_,
                           R"({"roles":{"r":{"Statement":{"Effect":"Allow","Action":"s3:GetObject",
          "Resource":"arn:aws:s3:::shared/*"}}}})"));
  EXPECT_EQ(decide("s3:GetObject", "arn:aws:s3:::shared/x"), Decision::kAllowed);
  EXPECT_EQ(decide("s3:PutObject", "arn:aws:s3:::shared/x"), Decision::kImplicitDeny);
}

TEST_F(JobAccessTest, AJobThatWasMadeByAJobHasTheRolesReach) {
  create("a", "arn:aws:sts::000000000000:assumed-role/r/parent");
  EXPECT_EQ(write(), Decision::kImplicitDeny);
}

TEST_F(JobAccessTest, KeysEndWithTheJobAndAreNotThoseOfAnotherOfItsName) {
  create("a", "arn:admin");
  EXPECT_EQ(write(), Decision::kAllowed);
  const http::SessionClaims earlier{"a", claims_.generation - 1, {}};
  EXPECT_FALSE(access_.principal_of(earlier));
  EXPECT_FALSE(access_.principal_of({"none", claims_.generation, {}}));
  service_->run();
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Completed");
  EXPECT_FALSE(access_.principal_of(claims_));
}

}  // namespace
}  // namespace atelier::jobs
