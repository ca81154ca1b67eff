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

// However the group is named, a policy sees one resource.
TEST_F(AccessTest, ADenyOfAStreamBindsHoweverItsGroupIsNamed) {
  statements_ =
      R"({"Effect":"Deny","Action":"logs:*","Resource":"arn:aws:logs:*:log-stream:secret/*"})";
  allow("logs:*", "*");
  const std::string name = "/aws/sagemaker/TrainingJobs";
  const std::string arn = "arn:aws:logs:us-west-2:000000000000:log-group:" + name;
  for (const auto& [member, group] : std::vector<std::pair<std::string, std::string>>{
           {"logGroupName", name}, {"logGroupIdentifier", name}, {"logGroupIdentifier", arn}}) {
    const auto get = [&](std::string_view stream) {
      return refusal("GetLogEvents",
                     fmt::format(R"({{"{}":"{}","logStreamName":"{}"}})", member, group, stream),
                     "Logs_20140328", "logs");
    };
    EXPECT_NE(get("secret/algo-1-1"), "") << group;
    EXPECT_EQ(get("open/algo-1-1"), "") << group;
  }
}

TEST_F(AccessTest, ACreateWithTagsNeedsTheRightToTag) {
  allow("sagemaker:CreateTrainingJob", "*");
  allow("iam:PassRole", "*");
  json::object body = internal::training_request();
  EXPECT_THAT(refusal("CreateTrainingJob", json::serialize(body)), HasSubstr("sagemaker:AddTags"));
  body.erase("Tags");
  EXPECT_EQ(refusal("CreateTrainingJob", json::serialize(body)), "");
  allow("sagemaker:AddTags", "*");
  EXPECT_EQ(refusal("CreateTrainingJob", json::serialize(internal::training_request("job-2"))), "");
}

TEST_F(AccessTest, AJobThatAJobMakesIsItsMakers) {
  world_.keys.entry.principal.arn = "arn:aws:sts::000000000000:assumed-role/r/job-0";
  world_.keys.entry.principal.creator = "arn:ann\narn:r";
  world_.call("CreateTrainingJob", json::serialize(internal::training_request()));
  EXPECT_EQ(world_.jobs.by_name.at("job-1").created_by, "arn:ann\narn:r");
}

class SimulateTest : public AccessTest {
 protected:
  std::string simulate(int actions, int resources, std::string_view more = "") {
    std::string body = fmt::format(
        "Action=SimulatePrincipalPolicy&Version=2010-05-08&PolicySourceArn=arn:aws:iam::"
        "000000000000:role/r{}",
        more);
    for (int i = 1; i <= actions; ++i) body += fmt::format("&ActionNames.member.{0}=s3:A{0}", i);
    for (int i = 1; i <= resources; ++i) body += fmt::format("&ResourceArns.member.{0}=r{0}", i);
    http::RequestHead head;
    head.method = "POST";
    head.target = "/";
    head.headers = {{"Host", "h"}, {"Content-Type", "application/x-www-form-urlencoded"}};
    world_.sign(head, "iam", body);
    return body_of(world_.send(head, body));
  }
  static std::size_t count(std::string_view text) {
    std::size_t found = 0;
    for (std::size_t at = text.find("<EvalDecision>"); at != std::string_view::npos;
         at = text.find("<EvalDecision>", at + 1)) {
      ++found;
    }
    return found;
  }
};

TEST_F(SimulateTest, IsAnsweredPageByPage) {
  const std::string first = simulate(30, 5);
  EXPECT_EQ(count(first), 100u) << first.substr(0, 500);
  EXPECT_THAT(first, HasSubstr("<IsTruncated>true</IsTruncated>"));
  EXPECT_THAT(first, HasSubstr("<Marker>100</Marker>"));
  const std::string last = simulate(30, 5, "&Marker=100");
  EXPECT_EQ(count(last), 50u);
  EXPECT_THAT(last, HasSubstr("<IsTruncated>false</IsTruncated>"));
  EXPECT_THAT(last, HasSubstr("<EvalResourceName>r5</EvalResourceName>"));
  EXPECT_EQ(count(simulate(30, 5, "&MaxItems=7")), 7u);
  for (const char* marker : {"&Marker=150", "&Marker=-1", "&Marker=x", "&Marker=1x"}) {
    EXPECT_THAT(simulate(30, 5, marker), HasSubstr("<Code>InvalidInput</Code>")) << marker;
  }
}

TEST_F(SimulateTest, ABoundIsNamed) {
  const std::string refused = simulate(101, 100);
  EXPECT_THAT(refused, HasSubstr("<Code>InvalidInput</Code>"));
  EXPECT_THAT(refused, HasSubstr("10000 are the most"));
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

TEST_F(CredentialsTest, ATicketIsOfUseToTheJobsOwnProgramsAlone) {
  Parts parts{store_, world_.s3, world_.jobs, world_.clock, &store_};
  parts.is_program_of = [](std::string_view job, std::string_view peer) {
    return job == "arn:job-1" && peer == "127.0.0.1:1";
  };
  door_ = make_front_door(parts);
  const Time until = world_.clock.now() + std::chrono::hours{100};
  const std::string ticket = sessions_.issue_ticket({"job-1", 1, until});
  EXPECT_EQ(fetch(ticket, "127.0.0.1:1").status, 200);
  EXPECT_EQ(fetch(ticket, "127.0.0.1:2").status, 403);
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
