// What a job's key may do while the job runs, and that it ends with it.
#include "jobs/job_access.h"

#include <fmt/format.h>
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
  std::unique_ptr<Roles> roles_ = *Roles::open(roles_path_, "000000000000");
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

// A job's request is made with the job's ARN, but what was denied to its creator stays so.
TEST_F(JobAccessTest, ADenyOfTheCreatorsArnBindsTheJob) {
  creators_["arn:ann"] = {{policy(R"([{"Effect":"Allow","Action":"*","Resource":"*"},
                  {"Effect":"Deny","Action":"s3:*","Resource":"arn:aws:s3:::out/*",
                   "Condition":{"ArnEquals":{"aws:PrincipalArn":"arn:ann"}}}])")}};
  create("a", "arn:ann");
  const auto principal = access_.principal_of(claims_);
  const std::pair<std::string_view, std::string_view> context[] = {
      {"aws:PrincipalArn", principal->arn}};
  EXPECT_EQ(
      principal->authority.decide({"s3:PutObject", "arn:aws:s3:::out/prefix/a/output/x", context}),
      Decision::kExplicitDeny);
}

TEST_F(JobAccessTest, NobodysJobMayDoNothing) {
  create("a", "");
  EXPECT_EQ(write(), Decision::kImplicitDeny);
}

class JobRolesTest : public JobAccessTest {
 protected:
  static constexpr std::string_view kRole = "arn:aws:iam::000000000000:role/r";  // of request_for()
  static constexpr std::string_view kShared = "arn:aws:s3:::shared/x";

  JobRolesTest() {
    replace_file(roles_path_, R"({"roles":{
      "r":{"Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::shared/*"},
                        {"Effect":"Deny","Action":"s3:PutObject","Resource":"arn:aws:s3:::out/*/x"}]},
      "maker":{"Statement":{"Effect":"Allow","Action":["iam:PassRole","sagemaker:*"],
                            "Resource":"*"}}}})")
        .value();
  }
  void let_ann(std::string_view action, std::string_view resource) {
    creators_["arn:ann"] = {{policy(fmt::format(
        R"([{{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::out/*"}},
            {{"Effect":"Allow","Action":"{}","Resource":"{}"}}])",
        action, resource))}};
  }
};

TEST_F(JobRolesTest, ARoleCountsWhileTheCreatorIsThereAndMayPassIt) {
  let_ann("iam:PassRole", kRole);
  create("a", "arn:ann");
  EXPECT_EQ(decide("s3:GetObject", std::string{kShared}), Decision::kAllowed);
  let_ann("iam:PassRole", "arn:aws:iam::000000000000:role/other");
  EXPECT_EQ(decide("s3:GetObject", std::string{kShared}), Decision::kImplicitDeny);
  EXPECT_EQ(write(), Decision::kExplicitDeny) << "what a role denies stays denied";
  let_ann("iam:PassRole", "*");
  EXPECT_EQ(decide("s3:GetObject", std::string{kShared}), Decision::kAllowed);
  creators_.erase("arn:ann");  // revoked
  EXPECT_EQ(decide("s3:GetObject", std::string{kShared}), Decision::kImplicitDeny);
}

TEST_F(JobRolesTest, AJobThatWasMadeByAJobIsItsRootCreators) {
  const std::string maker = "arn:aws:iam::000000000000:role/maker";
  let_ann("iam:PassRole", maker);
  create("a", "arn:ann\n" + maker);
  EXPECT_EQ(decide("s3:GetObject", std::string{kShared}), Decision::kAllowed);
  EXPECT_EQ(access_.principal_of(claims_)->creator,
            "arn:ann\n" + maker + "\n" + std::string{kRole});
  EXPECT_NE(write(), Decision::kAllowed) << "the role 'maker' cannot write there";
  let_ann("iam:PassRole", kRole);  // no longer the role that made it
  EXPECT_EQ(decide("s3:GetObject", std::string{kShared}), Decision::kImplicitDeny);
  let_ann("iam:PassRole", maker);
  EXPECT_EQ(decide("s3:GetObject", std::string{kShared}), Decision::kAllowed);
  creators_.erase("arn:ann");
  EXPECT_EQ(decide("s3:GetObject", std::string{kShared}), Decision::kImplicitDeny);
}

TEST_F(JobRolesTest, TheListOfRolesThatMadeAJobIsBounded) {
  create("a", "arn:ann\n" + std::string{kRole} + "\narn:x");
  EXPECT_EQ(access_.principal_of(claims_)->creator, "arn:ann\n" + std::string{kRole})
      << "a role that was passed on before is not listed again";
  std::string many = "arn:ann";
  for (int i = 0; i < 16; ++i) many += fmt::format("\narn:{}", i);
  create("b", many);
  const auto principal = access_.principal_of(claims_);
  EXPECT_EQ(principal->creator, "");
  EXPECT_EQ(principal->authority.decide({"sagemaker:CreateTrainingJob", "x"}),
            Decision::kExplicitDeny);
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
