#include "api/front_door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/internal/fake_parts.h"

namespace atelier::api {
namespace {

using internal::body_of;
using internal::json_of;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class FrontDoorTest : public ::testing::Test {
 protected:
  // A signed form, as boto3 sends it to STS and IAM.
  http::Response form(std::string_view service, std::string_view body) const {
    http::RequestHead head;
    head.method = "POST";
    head.target = "/";
    head.headers = {{"Host", "127.0.0.1:8080"},
                    {"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}};
    world_.sign(head, service, body);
    return world_.send(head, body);
  }

  static std::string error_code(const http::Response& response) {
    return std::string(json_of(response).at("__type").as_string());
  }

  internal::FakeWorld world_;
};

TEST_F(FrontDoorTest, AnswersASignedCall) {
  const http::Response response = world_.call("ListTrainingJobs", "{}");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(body_of(response), R"({"TrainingJobSummaries":[]})");
  EXPECT_EQ(response.headers.find("Content-Type"), "application/x-amz-json-1.1");
  EXPECT_THAT(std::string(response.headers.find("x-amzn-RequestId").value_or("")),
              MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
}

TEST_F(FrontDoorTest, RefusesACallWithoutASignature) {
  http::RequestHead head;
  head.method = "POST";
  head.target = "/";
  head.headers = {{"Host", "h"}, {"X-Amz-Target", "SageMaker.ListTrainingJobs"}};
  const http::Response response = world_.send(head, "{}");
  EXPECT_EQ(response.status, 403);
  EXPECT_EQ(error_code(response), "MissingAuthenticationTokenException");
}

TEST_F(FrontDoorTest, RefusesABodyThatWasNotSigned) {
  const http::RequestHead head = world_.json_head("sagemaker", "SageMaker.ListTrainingJobs", "{}");
  const http::Response response = world_.send(head, R"({"MaxResults":1})");
  EXPECT_EQ(response.status, 403);
  EXPECT_EQ(error_code(response), "InvalidSignatureException");
}

TEST_F(FrontDoorTest, RefusesAnUnsignedPayload) {
  http::RequestHead head;
  head.method = "POST";
  head.target = "/";
  head.headers = {{"Host", "h"},
                  {"Content-Type", "application/x-amz-json-1.1"},
                  {"X-Amz-Target", "SageMaker.ListTrainingJobs"},
                  {"x-amz-content-sha256", "UNSIGNED-PAYLOAD"}};
  http::sign(head.method, head.target, head.headers, "UNSIGNED-PAYLOAD",
             world_.keys.entry.credentials, "us-west-2", "sagemaker", world_.clock.now());
  EXPECT_EQ(error_code(world_.send(head, "{}")), "InvalidSignatureException");
}

TEST_F(FrontDoorTest, RefusesAnUnknownKeyAndAWrongSecretByDifferentCodes) {
  const http::RequestHead head = world_.json_head("sagemaker", "SageMaker.ListTrainingJobs", "{}");
  world_.keys.entry.credentials.secret_key = "another";
  EXPECT_EQ(error_code(world_.send(head, "{}")), "InvalidSignatureException");
  world_.keys.entry.credentials.access_key = "AKIDOTHER";
  EXPECT_EQ(error_code(world_.send(head, "{}")), "UnrecognizedClientException");
}

TEST_F(FrontDoorTest, RefusesASignatureForAnotherService) {
  const http::RequestHead head = world_.json_head("logs", "SageMaker.ListTrainingJobs", "{}");
  const http::Response response = world_.send(head, "{}");
  EXPECT_EQ(response.status, 403);
  EXPECT_THAT(body_of(response), HasSubstr("scoped to correct service: 'sagemaker'"));
}

TEST_F(FrontDoorTest, RefusesAnOldSignature) {
  const http::RequestHead head = world_.json_head("sagemaker", "SageMaker.ListTrainingJobs", "{}");
  world_.clock.time += std::chrono::minutes(16);
  EXPECT_EQ(world_.send(head, "{}").status, 403);
}

TEST_F(FrontDoorTest, NamesAnOperationOfTheModelThatIsNotServed) {
  const http::Response response = world_.call("CreateModel", "{}");
  EXPECT_EQ(response.status, 501);
  EXPECT_EQ(
      json_of(response).at("message").as_string(),
      "CreateModel is part of SageMaker's API, and this version of Atelier does not serve it");
}

TEST_F(FrontDoorTest, NamesAnOperationThatNoModelHas) {
  const http::Response response = world_.call("MakeCoffee", "{}");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(error_code(response), "UnknownOperationException");
  EXPECT_THAT(body_of(response), HasSubstr("SageMaker has no operation 'MakeCoffee'"));
}

TEST_F(FrontDoorTest, NamesAServiceThatIsNotServed) {
  const http::Response response =
      world_.call("DescribeRepositories", "{}", "AmazonEC2ContainerRegistry_V20150921", "ecr");
  EXPECT_EQ(response.status, 501);
  EXPECT_THAT(body_of(response), HasSubstr("AmazonEC2ContainerRegistry_V20150921"));
}

TEST_F(FrontDoorTest, BrokenJsonAndAWrongContentTypeAreSerializationExceptions) {
  for (const std::string_view body : {"{", "nonsense", "{\"a\":1}}", "[]", "7", "\xFF"}) {
    const http::Response response = world_.call("ListTrainingJobs", body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(error_code(response), "SerializationException") << body;
  }
  http::RequestHead head;
  head.method = "POST";
  head.target = "/";
  head.headers = {{"Host", "h"},
                  {"Content-Type", "text/plain"},
                  {"X-Amz-Target", "SageMaker.ListTrainingJobs"}};
  world_.sign(head, "sagemaker", "{}");
  EXPECT_EQ(error_code(world_.send(head, "{}")), "SerializationException");
}

TEST_F(FrontDoorTest, BoundsTheDepthOfABody) {
  const std::string body =
      "{\"NextToken\":" + std::string(5000, '[') + std::string(5000, ']') + "}";
  EXPECT_EQ(error_code(world_.call("ListTrainingJobs", body)), "SerializationException");
}

TEST_F(FrontDoorTest, BoundsTheSizeOfABodyBeforeReadingIt) {
  http::RequestHead head = world_.json_head("sagemaker", "SageMaker.ListTrainingJobs", "{}");
  head.content_length = (1U << 20) + 1;
  const auto declared = world_.door->begin(head);
  EXPECT_FALSE(declared->wants_body());
  EXPECT_EQ(declared->finish().status, 413);

  head.content_length.reset();  // chunked: the size shows on the way
  const auto chunked = world_.door->begin(head);
  EXPECT_TRUE(chunked->wants_body());
  const std::string piece(1U << 19, ' ');
  EXPECT_TRUE(chunked->on_body(std::as_bytes(std::span(piece))));
  EXPECT_TRUE(chunked->on_body(std::as_bytes(std::span(piece))));
  EXPECT_FALSE(chunked->on_body(std::as_bytes(std::span(piece))));
  EXPECT_EQ(chunked->finish().status, 413);
}

TEST_F(FrontDoorTest, KeepsNoBodyOfWhomNobodyKnows) {
  const auto wants = [&](const http::RequestHead& head) {
    return world_.door->begin(head)->wants_body();
  };
  const http::RequestHead good = world_.json_head("sagemaker", "SageMaker.ListTrainingJobs", "{}");
  EXPECT_TRUE(wants(good));
  http::RequestHead bad = good;
  bad.headers = {{"Host", "h"}, {"X-Amz-Target", "SageMaker.ListTrainingJobs"}};
  EXPECT_FALSE(wants(bad)) << "no signature";
  bad = good;
  bad.headers.add("x-amz-added", "1");
  EXPECT_FALSE(wants(bad)) << "a header that was not signed";
  world_.clock.time += std::chrono::minutes(16);
  EXPECT_FALSE(wants(good)) << "an old date";
  world_.clock.time -= std::chrono::minutes(16);
  world_.keys.entry.credentials.access_key = "AKIDOTHER";
  EXPECT_FALSE(wants(good)) << "an unknown key";
}

TEST_F(FrontDoorTest, BodiesOfAllRequestsTogetherAreBounded) {
  http::RequestHead head = world_.json_head("sagemaker", "SageMaker.ListTrainingJobs", "{}");
  head.content_length.reset();
  const std::string piece(1U << 20, ' ');
  std::vector<std::unique_ptr<http::Exchange>> open;
  for (int i = 0; i < 128; ++i) {
    open.push_back(world_.door->begin(head));
    ASSERT_TRUE(open.back()->on_body(std::as_bytes(std::span(piece)))) << i;
  }
  const auto more = world_.door->begin(head);
  EXPECT_FALSE(more->on_body(std::as_bytes(std::span(piece))));
  EXPECT_EQ(more->finish().status, 503);
  open.pop_back();
  EXPECT_TRUE(world_.door->begin(head)->on_body(std::as_bytes(std::span(piece))));
}

// Answers like S3: a delete of many of which some are refused, and a copy that is.
class RefusingS3 : public internal::FakeS3 {
 public:
  std::unique_ptr<http::Exchange> begin(const http::RequestHead& head,
                                        const http::Verified& /*caller*/) override {
    if (head.method == "POST") {
      return http::answer(
          {200,
           {},
           "<DeleteResult><Error><Key>secret/a</Key><Code>AccessDenied</Code></Error>"
           "<Deleted><Key>mine</Key></Deleted><Error><Key>secret/b</Key></Error>"
           "</DeleteResult>",
           {}});
    }
    return http::answer({403,
                         {},
                         "<Error><Code>AccessDenied</Code><Message>User: u is not authorized to "
                         "perform: s3:GetObject</Message></Error>",
                         {}});
  }
  [[nodiscard]] Named name(const http::RequestHead& head) const override {
    return {head.method == "POST" ? "s3:DeleteObject" : "s3:PutObject", "arn:aws:s3:::b"};
  }
};

TEST_F(FrontDoorTest, TheRecordNamesWhatWasRefused) {
  const TempFolder folder = TempFolder::create().value();
  const auto audit = AuditLog::open(folder.path()).value();
  RefusingS3 s3;
  const http::SessionKeys sessions{"secret"};
  const http::SessionKeyStore store{
      world_.keys, sessions, [](const http::SessionClaims&) {
        return std::optional{http::Principal{.access_key = "", .arn = "arn:job-1"}};
      }};
  world_.door = make_front_door({store, s3, world_.jobs, world_.clock, &store, audit.get()});
  const auto send = [&](const std::string& method, http::Headers headers) {
    http::RequestHead head;
    head.method = method;
    head.target = "/b/k";
    head.headers = std::move(headers);
    head.headers.add("Host", "h");
    world_.sign(head, "s3", "");
    world_.send(head, "");
  };
  send("POST", {});
  send("PUT", {{"x-amz-copy-source", "/b/secret/a"}});
  http::RequestHead ticket;
  ticket.method = "GET";
  ticket.target = "/_atelier/credentials";
  ticket.peer = "127.0.0.1:1";
  ticket.headers = {
      {"Authorization",
       sessions.issue_ticket({"job-1", 1, world_.clock.now() + std::chrono::hours{1}})}};
  world_.send(ticket, "");
  world_.keys.entry.principal.authority = {};
  world_.call("ListTrainingJobs", "{}");
  const std::string told = read_file(folder.path() / "audit.jsonl").value();
  EXPECT_THAT(told, HasSubstr("\"detail\":\"2 keys refused: secret/a secret/b\""));
  EXPECT_THAT(
      told,
      HasSubstr(
          "\"detail\":\"from /b/secret/a; User: u is not authorized to perform: s3:GetObject\""));
  EXPECT_THAT(told, HasSubstr("\"principal\":\"arn:job-1\",\"access_key\":\"ASIA"));
  EXPECT_THAT(told, HasSubstr("atelier:ExchangeTicket"));
  EXPECT_THAT(told, HasSubstr("is not authorized to perform: sagemaker:ListTrainingJobs"));
}

TEST_F(FrontDoorTest, SaysWhoIsCallingInXml) {
  const http::Response response = form("sts", "Action=GetCallerIdentity&Version=2011-06-15");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.find("Content-Type"), "text/xml");
  EXPECT_THAT(
      body_of(response),
      HasSubstr("<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"));
  EXPECT_THAT(body_of(response), HasSubstr("<Arn>arn:aws:iam::000000000000:user/admin</Arn>"));
  EXPECT_THAT(body_of(response),
              HasSubstr(std::string(response.headers.find("x-amzn-RequestId").value_or("?"))));
}

TEST_F(FrontDoorTest, EveryRoleNameIsARoleThatSageMakerMayAssume) {
  const http::Response response =
      form("iam", "Action=GetRole&Version=2010-05-08&RoleName=platform%2Bx");
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(body_of(response), HasSubstr("<Arn>arn:aws:iam::000000000000:role/platform+x</Arn>"));
  EXPECT_THAT(body_of(response), HasSubstr("sagemaker.amazonaws.com"));
  EXPECT_THAT(body_of(response), HasSubstr("<CreateDate>2017-11-29T00:00:00Z</CreateDate>"));
}

TEST_F(FrontDoorTest, AnswersQueryErrorsInXml) {
  const auto expect = [&](std::string_view service, std::string_view body, int status,
                          std::string_view code) {
    const http::Response response = form(service, body);
    EXPECT_EQ(response.status, status) << body;
    EXPECT_THAT(body_of(response), HasSubstr(fmt::format("<Code>{}</Code>", code))) << body;
  };
  expect("iam", "Action=GetRole&RoleName=a%20b", 400, "ValidationError");
  expect("iam", "Action=GetRole", 400, "ValidationError");
  expect("iam", "Action=CreateRole", 501, "NotImplemented");
  expect("iam", "Action=Nothing", 400, "InvalidAction");
  expect("iam", "RoleName=a", 400, "MalformedQueryString");
  expect("iam", "Action=GetRole&RoleName=%", 400, "MalformedQueryString");
  expect("iam", "Action=GetRole&RoleName=%FF", 400, "MalformedQueryString");

  http::RequestHead head;
  head.method = "POST";
  head.target = "/";
  head.headers = {{"Host", "h"}, {"Content-Type", "application/x-www-form-urlencoded"}};
  EXPECT_THAT(body_of(world_.send(head, "Action=GetCallerIdentity")),
              HasSubstr("<Code>MissingAuthenticationToken</Code>"));
}

TEST_F(FrontDoorTest, NamesAProtocolThatIsNotServed) {
  http::RequestHead head;
  head.method = "POST";
  head.target = "/service/GraniteServiceVersion20100801/operation/ListMetrics";
  head.headers = {
      {"Host", "h"}, {"Content-Type", "application/cbor"}, {"smithy-protocol", "rpc-v2-cbor"}};
  world_.sign(head, "monitoring", "\xA0");
  const http::Response response = world_.send(head, "\xA0");
  EXPECT_EQ(response.status, 501);
  EXPECT_THAT(body_of(response), HasSubstr("CloudWatch is not served in the protocol"));
}

TEST_F(FrontDoorTest, TakesAPresignedGetOfTheCallersIdentity) {
  http::RequestHead head;
  head.method = "GET";
  head.headers = {{"Host", "127.0.0.1:8080"}};
  head.target = http::presign("GET", "/?Action=GetCallerIdentity&Version=2011-06-15",
                              "127.0.0.1:8080", world_.keys.entry.credentials, "us-west-2", "sts",
                              world_.clock.now(), std::chrono::seconds(60));
  const http::Response response = world_.send(head, "");
  EXPECT_THAT(body_of(response), HasSubstr("<Account>000000000000</Account>"));
}

TEST_F(FrontDoorTest, HandsS3OnOnceItIsVerified) {
  http::RequestHead head;
  head.method = "GET";
  head.target = "/bucket/key";
  head.headers = {{"Host", "127.0.0.1:8080"}};
  world_.sign(head, "s3", "");
  EXPECT_EQ(body_of(world_.send(head, "")), "GET by AKIDEXAMPLE");
}

TEST_F(FrontDoorTest, LetsS3RefuseWhatIsNotSignedForIt) {
  http::RequestHead head;
  head.method = "GET";
  head.target = "/bucket/key";
  head.headers = {{"Host", "127.0.0.1:8080"}};
  EXPECT_THAT(body_of(world_.send(head, "")), HasSubstr("AccessDenied"));
}

TEST_F(FrontDoorTest, AnswersPingWithoutASignatureAndTellsNothing) {
  http::RequestHead head;
  head.method = "GET";
  head.target = "/ping";
  head.headers = {{"Host", "h"}};
  const http::Response response = world_.send(head, "");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(body_of(response), "ok\n");
}

}  // namespace
}  // namespace atelier::api
