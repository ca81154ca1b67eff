// What a key with a policy may call, through the front door.
#include "api/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/credentials.h"
#include "api/internal/fake_parts.h"

namespace atelier::api {
namespace {

using internal::body_of;
using internal::json_of;
using ::testing::HasSubstr;

class AccessTest : public ::testing::Test {
 protected:
  void allow(std::string_view action, std::string_view resource) {
    statements_ += fmt::format(R"({}{{"Effect":"Allow","Action":"{}","Resource":"{}"}})",
                               statements_.empty() ? "" : ",", action, resource);
    world_.keys.entry.principal.authority = access::Authority{
        {{access::Policy::parse(fmt::format(R"({{"Statement":[{}]}})", statements_)).value()}}};
    world_.keys.entry.principal.arn = "arn:aws:iam::000000000000:user/ann";
  }
  // "" when the call was let through.
  std::string refusal(std::string_view operation, std::string_view body,
                      std::string_view prefix = "SageMaker",
                      std::string_view service = "sagemaker") {
    const http::Response response = world_.call(operation, body, prefix, service);
    const std::string text = body_of(response);
    if (text.find("AccessDenied") == std::string::npos) return "";
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(json_of(response).at("__type").as_string(), "AccessDeniedException");
    return std::string(json_of(response).at("message").as_string());
  }

  std::string statements_;
  internal::FakeWorld world_;
};

TEST_F(AccessTest, AJobIsAResourceByItsName) {
  allow("sagemaker:DescribeTrainingJob",
        "arn:aws:sagemaker:us-west-2:000000000000:training-job/team-*");
  EXPECT_EQ(refusal("DescribeTrainingJob", R"({"TrainingJobName":"team-1"})"), "");
  EXPECT_THAT(refusal("DescribeTrainingJob", R"({"TrainingJobName":"other"})"),
              HasSubstr("User: arn:aws:iam::000000000000:user/ann is not authorized to perform: "
                        "sagemaker:DescribeTrainingJob on resource: "
                        "arn:aws:sagemaker:us-west-2:000000000000:training-job/other because"));
  EXPECT_NE(refusal("StopTrainingJob", R"({"TrainingJobName":"team-1"})"), "");
  EXPECT_NE(refusal("ListTrainingJobs", "{}"), "");
}

TEST_F(AccessTest, ACreateNeedsItsRoleBesides) {
  allow("sagemaker:*", "*");
  const std::string body = json::serialize(internal::training_request());
  EXPECT_THAT(refusal("CreateTrainingJob", body), HasSubstr("iam:PassRole"));
  EXPECT_TRUE(world_.jobs.by_name.empty());
  allow("iam:PassRole", "arn:aws:iam::000000000000:role/platform");
  EXPECT_EQ(refusal("CreateTrainingJob", body), "");
  EXPECT_EQ(world_.jobs.by_name.size(), 1u);
}

TEST_F(AccessTest, LogsAreNamedByGroupAndStream) {
  allow("logs:GetLogEvents",
        "arn:aws:logs:us-west-2:000000000000:log-group:/aws/sagemaker/TrainingJobs:log-stream:a/*");
  const auto get = [&](std::string_view stream) {
    return refusal("GetLogEvents",
                   fmt::format(R"({{"logGroupName":"/aws/sagemaker/TrainingJobs",)"
                               R"("logStreamName":"{}"}})",
                               stream),
                   "Logs_20140328", "logs");
  };
  EXPECT_EQ(get("a/algo-1-1"), "");
  EXPECT_NE(get("b/algo-1-1"), "");
}

TEST_F(AccessTest, QueryServicesRefuseInTheirOwnWords) {
  allow("sagemaker:*", "*");
  http::RequestHead head;
  head.method = "POST";
  head.target = "/";
  head.headers = {{"Host", "127.0.0.1:8080"},
                  {"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}};
  http::RequestHead iam = head;
  const std::string get_role = "Action=GetRole&RoleName=r&Version=2010-05-08";
  world_.sign(iam, "iam", get_role);
  const http::Response refused = world_.send(iam, get_role);
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(body_of(refused), HasSubstr("<Code>AccessDenied</Code>"));
  EXPECT_THAT(body_of(refused), HasSubstr("arn:aws:iam::000000000000:role/r"));
  const std::string who = "Action=GetCallerIdentity&Version=2011-06-15";
  world_.sign(head, "sts", who);
  EXPECT_EQ(world_.send(head, who).status, 200) << "everyone may ask who they are";
}

class CredentialsTest : public ::testing::Test {
 protected:
  http::Response fetch(const std::string& ticket, const std::string& peer = "127.0.0.1:5000",
                       const std::string& target = kCredentialsPath) {
    http::RequestHead head;
    head.method = "GET";
    head.target = target;
    head.headers = {{"Host", "127.0.0.1:8080"}, {"Authorization", ticket}};
    head.peer = peer;
    return door_->begin(head)->finish();
  }

  internal::FakeWorld world_;
  http::SessionKeys sessions_{"secret"};
  http::SessionKeyStore store_{world_.keys, sessions_, [](const http::SessionClaims& claims) {
                                 std::optional<http::Principal> principal;
                                 if (claims.subject == "job-1") {
                                   principal =
                                       http::Principal{.access_key = "", .arn = "arn:job-1"};
                                 }
                                 return principal;
                               }};
  std::unique_ptr<http::Handler> door_ =
      make_front_door({store_, world_.s3, world_.jobs, world_.clock, &store_});
};

TEST_F(CredentialsTest, ATicketIsAnsweredWithAKeyOfTheJob) {
  const Time until = world_.clock.now() + std::chrono::hours{100};
  const http::Response response = fetch(sessions_.issue_ticket({"job-1", 1, until}));
  EXPECT_EQ(response.status, 200) << body_of(response);
  const json::value body = json_of(response);
  EXPECT_EQ(body.at("Expiration").as_string(), "2026-11-30T08:05:55Z");
  EXPECT_EQ(body.at("RoleArn").as_string(), "arn:job-1");
  const auto claims = sessions_.find(std::string(body.at("AccessKeyId").as_string()),
                                     std::string(body.at("Token").as_string()));
  ASSERT_TRUE(claims);
  EXPECT_EQ(claims->subject, "job-1");
}

TEST_F(CredentialsTest, OthersGetNone) {
  const Time until = world_.clock.now() + std::chrono::hours{100};
  const std::string ticket = sessions_.issue_ticket({"job-1", 1, until});
  EXPECT_EQ(fetch("").status, 403);
  EXPECT_EQ(fetch(ticket.substr(1)).status, 403);
  EXPECT_EQ(fetch(sessions_.issue_ticket({"ended", 1, until})).status, 403);
  EXPECT_EQ(fetch(sessions_.issue_ticket({"job-1", 1, world_.clock.now()})).status, 403);
  EXPECT_EQ(fetch(sessions_.issue({"job-1", 1, until}).session_token).status, 403);
  EXPECT_EQ(fetch(ticket, "192.168.0.7:5000").status, 403);
  EXPECT_NE(fetch(ticket, "127.0.0.1:1", "/_atelier/credentials/../credentials").status, 200);
  EXPECT_EQ(body_of(fetch(ticket, "10.0.0.1:1")).find("SecretAccessKey"), std::string::npos);
}

}  // namespace
}  // namespace atelier::api
