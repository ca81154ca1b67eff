#include "api/query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/route.h"

namespace atelier::api {
namespace {

using ::testing::HasSubstr;

TEST(Query, ReadsActionAndFields) {
  const QueryCall call =
      parse_query_call("Action=GetRole&Version=2010-05-08&RoleName=a%2Fb+c&X-Amz-Date=x").value();
  EXPECT_EQ(call.action, "GetRole");
  EXPECT_EQ(json::serialize(call.input), R"({"RoleName":"a/b c"})");
}

TEST(Query, BuildsListsNumbersAndTimesByTheShape) {
  const Operation& operation = *find_operation(*find_service("monitoring"), "GetMetricStatistics");
  const auto input = [&](std::string_view form) {
    return json::serialize(
        shape_query_input(parse_query_call(form).value().input, *operation.input));
  };
  EXPECT_EQ(input("Action=A&Namespace=n&Period=60&StartTime=2026-11-30T07%3A00%3A00Z"
                  "&Dimensions.member.1.Name=TrainingJobName&Dimensions.member.1.Value=a"
                  "&Dimensions.member.2.Name=b&Statistics.member.1=Average&Other=x"),
            R"({"Namespace":"n","Dimensions":[{"Name":"TrainingJobName","Value":"a"},)"
            R"({"Name":"b"}],"StartTime":1.796022E9,"Period":60,"Statistics":["Average"]})");
  EXPECT_EQ(input("Action=A&Period=sixty&StartTime=now&Statistics.member.2=x"),
            R"({"StartTime":"now","Period":"sixty"})");
}

TEST(Query, RefusesAFormThatItCanNotRead) {
  for (const char* form : {"", "RoleName=x", "Action=%zz", "Action=A&B=%ff"}) {
    EXPECT_FALSE(parse_query_call(form)) << form;
  }
}

TEST(Query, EscapesWhatXmlCanNotHold) {
  const std::string xml = query_error("urn:x", {400, "Bad", "<a> & \"b\" \x01"}, "id");
  EXPECT_THAT(xml, HasSubstr("&lt;a&gt; &amp; &quot;b&quot; \xEF\xBF\xBD"));
  EXPECT_THAT(xml, HasSubstr("<Type>Sender</Type>"));
}

Route routed(std::string method, std::string target, http::Headers headers) {
  http::RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.headers = std::move(headers);
  return route_of(head);
}

std::string authorization(std::string_view service) {
  return "AWS4-HMAC-SHA256 Credential=AKID/20261130/us-west-2/" + std::string(service) +
         "/aws4_request, SignedHeaders=host, Signature=00";
}

TEST(Route, GoesByTargetFirst) {
  const Route route = routed(
      "POST", "/",
      {{"X-Amz-Target", "Logs_20140328.GetLogEvents"}, {"Authorization", authorization("s3")}});
  EXPECT_EQ(route.to, Route::To::kJson);
  EXPECT_EQ(route.service->signing_name, "logs");
  EXPECT_EQ(route.operation, "GetLogEvents");
}

TEST(Route, ThenByTheScopeOfTheCredential) {
  EXPECT_EQ(routed("POST", "/", {{"Authorization", authorization("iam")}}).to, Route::To::kQuery);
  EXPECT_EQ(routed("PUT", "/b", {{"Authorization", authorization("s3")}}).to, Route::To::kS3);
  EXPECT_EQ(routed("POST", "/", {{"Authorization", authorization("monitoring")}}).to,
            Route::To::kQuery);
  const Route other = routed("GET", "/x", {{"Authorization", authorization("elasticfilesystem")}});
  EXPECT_EQ(other.to, Route::To::kJson);
  EXPECT_EQ(other.service, nullptr);
  EXPECT_EQ(other.service_name, "elasticfilesystem");
  EXPECT_EQ(
      routed("GET", "/?X-Amz-Credential=A%2F20261130%2Fus-west-2%2Fsts%2Faws4_request", {}).to,
      Route::To::kQuery);
}

TEST(Route, ThenByPath) {
  EXPECT_EQ(routed("GET", "/ping", {}).to, Route::To::kHealth);
  EXPECT_EQ(routed("GET", "/ping?x", {}).to, Route::To::kS3);
  EXPECT_EQ(routed("GET", "/bucket/key", {}).to, Route::To::kS3);
  EXPECT_EQ(routed("POST", "/", {{"Content-Type", "application/x-www-form-urlencoded"}}).to,
            Route::To::kQuery);
}

TEST(Route, PrintsNothingThatAClientMadeUp) {
  const Route route = routed("POST", "/", {{"X-Amz-Target", "Sage\xFFMaker<.Op\n\"x"}});
  EXPECT_EQ(route.service, nullptr);
  EXPECT_EQ(route.service_name, "Sage?Maker?");
  EXPECT_EQ(route.operation, "Op??x");
}

}  // namespace
}  // namespace atelier::api
