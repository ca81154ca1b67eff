// CloudWatch in JSON and Query, log groups and filters, and IAM's answers to the SDK.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/filter_pattern.h"
#include "api/internal/fake_parts.h"

namespace atelier::api {
namespace {

using internal::body_of;
using internal::json_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CloudWatchTest : public ::testing::Test {
 protected:
  CloudWatchTest() {
    world_.jobs.by_name["a"].name = "a";
    world_.jobs.by_name["a"].final_metrics = {{"loss", 0.5, Time{}}, {"accuracy", 0.9, Time{}}};
    world_.jobs.by_name["b"].name = "b";
    world_.jobs.by_name["b"].final_metrics = {{"loss", 0.7, Time{}}};
    for (const auto& [milliseconds, value] : {std::pair(60'000, 4.0), std::pair(61'500, 2.0),
                                              std::pair(119'999, 3.0), std::pair(120'000, 9.0)}) {
      world_.jobs.samples["loss"].push_back({from_epoch_milliseconds(milliseconds), value});
    }
  }

  http::Response call(std::string_view operation, const json::object& input) const {
    return world_.call(operation, json::serialize(input), "GraniteServiceVersion20100801",
                       "monitoring");
  }
  static json::object statistics(std::string_view job = "a") {
    return {{"Namespace", "/aws/sagemaker/TrainingJobs"},
            {"MetricName", "loss"},
            {"Dimensions", json::array{{{"Name", "TrainingJobName"}, {"Value", job}}}},
            {"StartTime", 60},
            {"EndTime", 200},
            {"Period", 60},
            {"Statistics", json::array{"Average"}}};
  }
  std::string points(const json::object& request) const {
    const json::value reply = json_of(call("GetMetricStatistics", request));
    std::string text;
    for (const json::value& point : reply.at("Datapoints").as_array()) {
      text += fmt::format("{}={} ", point.at("Timestamp").to_number<int>(),
                          point.at("Average").to_number<double>());
    }
    return text;
  }
  http::Response query(std::string_view service, const std::string& form) const {
    http::RequestHead head;
    head.method = "POST";
    head.target = "/";
    head.headers = {{"Host", "127.0.0.1:8080"},
                    {"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}};
    world_.sign(head, service, form);
    return world_.send(head, form);
  }

  internal::FakeWorld world_;
};

TEST_F(CloudWatchTest, ValuesAreGatheredByPeriodOfAnyLength) {
  json::object request = statistics();
  EXPECT_EQ(points(request), "60=3 120=9 ");
  request["Period"] = 1;
  EXPECT_EQ(points(request), "60=4 61=2 119=3 120=9 ");
  request["Period"] = 3600;
  EXPECT_EQ(points(request), "0=4.5 ");
  request["StartTime"] = 100;  // falls into the first minute, which counts whole
  request["EndTime"] = 120;
  request["Period"] = 60;
  EXPECT_EQ(points(request), "60=3 ");
}

TEST_F(CloudWatchTest, EachStatisticIsOfItsPeriod) {
  json::object request = statistics();
  request["EndTime"] = 120;
  request["Statistics"] = {"SampleCount", "Sum", "Minimum", "Maximum"};
  request["ExtendedStatistics"] = {"p50", "p100"};
  const json::value reply = json_of(call("GetMetricStatistics", request));
  EXPECT_EQ(json::serialize(reply.at("Datapoints")),
            R"([{"Timestamp":60,"Unit":"None","SampleCount":3E0,"Sum":9E0,"Minimum":2E0,)"
            R"("Maximum":4E0,"ExtendedStatistics":{"p50":3E0,"p100":4E0}}])");
}

TEST_F(CloudWatchTest, WhatIsNotHereHasNoValuesAndWhatCanNotBeIsRefused) {
  EXPECT_EQ(points(statistics("none")), "");
  json::object request = statistics();
  request["Namespace"] = "AWS/EC2";
  EXPECT_EQ(points(request), "");
  request = statistics();
  request["EndTime"] = 60;
  http::Response reply = call("GetMetricStatistics", request);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(json_of(reply).at("__type"), "InvalidParameterValueException");
  EXPECT_EQ(reply.headers.find("x-amzn-query-error").value_or(""), "InvalidParameterValue;Sender");
  EXPECT_EQ(reply.headers.find("Content-Type").value_or(""), "application/x-amz-json-1.0");
  request = statistics();
  request.erase("Statistics");
  EXPECT_EQ(json_of(call("GetMetricStatistics", request)).at("__type"),
            "InvalidParameterCombinationException");
  request["ExtendedStatistics"] = {"tm99"};
  EXPECT_THAT(body_of(call("GetMetricStatistics", request)), HasSubstr("'tm99' is not served"));
}

TEST_F(CloudWatchTest, TooManyDataPointsAreRefusedNotCut) {
  std::vector<jobs::MetricSample>& samples = world_.jobs.samples["loss"];
  for (int second = 200; second < 101'100; ++second) {
    samples.push_back({from_epoch_milliseconds(second * 1000), 1});
  }
  json::object request = statistics();
  request["Period"] = 1;
  request["EndTime"] = 200'000;
  EXPECT_THAT(body_of(call("GetMetricStatistics", request)),
              HasSubstr("more than 100800 data points of 'loss'"));
}

TEST_F(CloudWatchTest, MetricDataAnswersEveryQueryAndRefusesExpressions) {
  const json::object metric{{"Namespace", "/aws/sagemaker/TrainingJobs"},
                            {"MetricName", "loss"},
                            {"Dimensions", statistics()["Dimensions"]}};
  json::object request{
      {"StartTime", 60},
      {"EndTime", 200},
      {"MetricDataQueries",
       json::array{{{"Id", "m1"},
                    {"MetricStat", {{"Metric", metric}, {"Period", 60}, {"Stat", "Maximum"}}}}}}};
  json::value reply = json_of(call("GetMetricData", request));
  EXPECT_EQ(json::serialize(reply.at("MetricDataResults")),
            R"([{"Id":"m1","Label":"loss","Timestamps":[120,60],"Values":[9E0,4E0],)"
            R"("StatusCode":"Complete"}])");
  request["ScanBy"] = "TimestampAscending";
  reply = json_of(call("GetMetricData", request));
  EXPECT_EQ(json::serialize(reply.at("MetricDataResults").at(0).at("Timestamps")), "[60,120]");
  request["MetricDataQueries"] = json::array{{{"Id", "e1"}, {"Expression", "m1*2"}}};
  EXPECT_THAT(body_of(call("GetMetricData", request)),
              HasSubstr("MetricDataQueries 'e1': expressions are not served"));
}

TEST_F(CloudWatchTest, MetricsAreListedByJobAndName) {
  const auto listed = [&](const json::object& request) {
    std::string text;
    const json::value reply = json_of(call("ListMetrics", request));
    for (const json::value& row : reply.at("Metrics").as_array()) {
      text += fmt::format("{}/{} ", row.at("Dimensions").at(0).at("Value").as_string().c_str(),
                          row.at("MetricName").as_string().c_str());
    }
    return text;
  };
  EXPECT_EQ(listed({}), "a/loss a/accuracy b/loss ");
  EXPECT_EQ(listed({{"MetricName", "loss"}}), "a/loss b/loss ");
  EXPECT_EQ(listed({{"Dimensions", json::array{{{"Name", "TrainingJobName"}, {"Value", "b"}}}}}),
            "b/loss ");
  EXPECT_EQ(listed({{"Namespace", "AWS/EC2"}}), "");
}

TEST_F(CloudWatchTest, TheQueryFormSaysTheSameInXml) {
  const http::Response reply = query(
      "monitoring",
      "Action=GetMetricStatistics&Version=2010-08-01&Namespace=%2Faws%2Fsagemaker%2FTrainingJobs"
      "&MetricName=loss&Dimensions.member.1.Name=TrainingJobName&Dimensions.member.1.Value=a"
      "&StartTime=1970-01-01T00%3A01%3A00Z&EndTime=1970-01-01T00%3A02%3A00Z&Period=60"
      "&Statistics.member.1=Average");
  EXPECT_EQ(reply.status, 200) << body_of(reply);
  EXPECT_THAT(body_of(reply), HasSubstr("<Timestamp>1970-01-01T00:01:00Z</Timestamp>"));
  EXPECT_THAT(body_of(reply), HasSubstr("<Average>3"));
  const http::Response error =
      query("monitoring", "Action=ListMetrics&Version=2010-08-01&RecentlyActive=PT9H");
  EXPECT_THAT(body_of(error), HasSubstr("<Code>ValidationError</Code>"));
}

TEST_F(CloudWatchTest, RolesAreTrustedAndMayWhatTheirCallerMay) {
  const std::string allowed =
      body_of(query("iam",
                    "Action=SimulatePrincipalPolicy&Version=2010-05-08"
                    "&PolicySourceArn=arn%3Aaws%3Aiam%3A%3A000000000000%3Arole%2Fplatform"
                    "&ActionNames.member.1=s3%3AGetObject&ActionNames.member.2=s3%3APutObject"
                    "&ResourceArns.member.1=arn%3Aaws%3As3%3A%3A%3Ab%2F%2A"));
  EXPECT_THAT(allowed, HasSubstr("<EvalActionName>s3:PutObject</EvalActionName>"));
  EXPECT_THAT(allowed, HasSubstr("<EvalDecision>allowed</EvalDecision>"));
  EXPECT_THAT(allowed, Not(HasSubstr("Deny</EvalDecision>")));
  const std::string stranger =
      body_of(query("iam",
                    "Action=SimulatePrincipalPolicy&Version=2010-05-08"
                    "&PolicySourceArn=arn%3Aaws%3Aiam%3A%3A000000000000%3Auser%2Fstranger"
                    "&ActionNames.member.1=s3%3AGetObject"));
  EXPECT_THAT(stranger, HasSubstr("<Code>NoSuchEntity</Code>"));
  EXPECT_THAT(body_of(query("iam", "Action=ListRoles&Version=2010-05-08")),
              HasSubstr("<RoleName>atelier</RoleName>"));
}

TEST_F(CloudWatchTest, TheOneLogGroupIsFoundByPrefixAndPattern) {
  const auto groups = [&](const char* request) {
    const json::value reply =
        json_of(world_.call("DescribeLogGroups", request, "Logs_20140328", "logs"));
    return reply.at("logGroups").as_array().size();
  };
  EXPECT_EQ(groups("{}"), 1U);
  EXPECT_EQ(groups(R"({"logGroupNamePrefix": "/aws/sagemaker"})"), 1U);
  EXPECT_EQ(groups(R"({"logGroupNamePrefix": "/aws/lambda"})"), 0U);
  EXPECT_EQ(groups(R"({"logGroupNamePattern": "Training"})"), 1U);
}

TEST(FilterPatternTest, TermsAnyOfAndNot) {
  const auto matches = [](std::string_view pattern, std::string_view line) {
    return FilterPattern::parse(pattern)->matches(line);
  };
  EXPECT_TRUE(matches("", "anything"));
  EXPECT_TRUE(matches("loss epoch", "epoch 1 loss=2"));
  EXPECT_FALSE(matches("loss epoch", "loss=2"));
  EXPECT_TRUE(matches("?loss ?accuracy", "accuracy=1"));
  EXPECT_FALSE(matches("?loss ?accuracy", "epoch 1"));
  EXPECT_FALSE(matches("epoch -loss", "epoch 1 loss=2"));
  EXPECT_TRUE(matches("\"epoch 1\"", "epoch 1 loss=2"));
  EXPECT_FALSE(matches("\"1 epoch\"", "epoch 1 loss=2"));
  EXPECT_TRUE(matches(R"("say \"x\"")", R"(I say "x")"));
  EXPECT_FALSE(matches("LOSS", "loss"));
}

TEST(FilterPatternTest, WhatIsNotServedIsNamed) {
  for (const char* text : {"{ $.a = 1 }", "[a, b]", "%x%", "\"open", "?", "- x"}) {
    EXPECT_FALSE(FilterPattern::parse(text)) << text;
  }
}

}  // namespace
}  // namespace atelier::api
