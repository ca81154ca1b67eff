#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/internal/fake_parts.h"

namespace atelier::api {
namespace {

using internal::json_of;
using ::testing::ElementsAre;

class LogsTest : public ::testing::Test {
 protected:
  LogsTest() {
    for (const auto& [name, last] :
         {std::pair("b/algo-1-5", 30), std::pair("a/algo-1-1", 20), std::pair("ab/algo-1-2", 10)}) {
      world_.jobs.streams.push_back({name, from_epoch_milliseconds(1), from_epoch_milliseconds(2),
                                     from_epoch_milliseconds(last), 7});
    }
  }

  json::value call(std::string_view operation, json::object input) const {
    input.emplace("logGroupName", "/aws/sagemaker/TrainingJobs");
    return json_of(world_.call(operation, json::serialize(input), "Logs_20140328", "logs"));
  }

  std::vector<std::string> names(const json::object& input) const {
    const json::value reply = call("DescribeLogStreams", input);
    std::vector<std::string> names;
    for (const json::value& stream : reply.at("logStreams").as_array()) {
      names.emplace_back(stream.at("logStreamName").as_string());
    }
    return names;
  }

  internal::FakeWorld world_;
};

TEST_F(LogsTest, StreamsComeByNameAndMatchAPrefixLiterally) {
  EXPECT_THAT(names({}), ElementsAre("a/algo-1-1", "ab/algo-1-2", "b/algo-1-5"));
  EXPECT_THAT(names({{"logStreamNamePrefix", "a/"}}), ElementsAre("a/algo-1-1"));
  EXPECT_THAT(names({{"logStreamNamePrefix", "a"}}), ElementsAre("a/algo-1-1", "ab/algo-1-2"));
  EXPECT_THAT(names({{"descending", true}}),
              ElementsAre("b/algo-1-5", "ab/algo-1-2", "a/algo-1-1"));
  EXPECT_THAT(names({{"orderBy", "LastEventTime"}, {"descending", true}}),
              ElementsAre("b/algo-1-5", "a/algo-1-1", "ab/algo-1-2"));
}

TEST_F(LogsTest, ThereIsNoTokenWhenEverythingFits) {
  const json::value reply = call("DescribeLogStreams", {{"limit", 3}});
  EXPECT_FALSE(reply.as_object().contains("nextToken"));
}

TEST_F(LogsTest, PagesGiveEachStreamOnceInEveryOrder) {
  for (const bool descending : {false, true}) {
    for (const char* order : {"LogStreamName", "LastEventTime"}) {
      const json::object whole{{"orderBy", order}, {"descending", descending}};
      std::vector<std::string> paged;
      json::object input = whole;
      input["limit"] = 1;
      while (true) {
        const json::value reply = call("DescribeLogStreams", input);
        for (const json::value& stream : reply.at("logStreams").as_array()) {
          paged.emplace_back(stream.at("logStreamName").as_string());
        }
        if (!reply.as_object().contains("nextToken")) break;
        input["nextToken"] = reply.at("nextToken");
      }
      EXPECT_EQ(paged, names(whole)) << order << descending;
    }
  }
}

TEST_F(LogsTest, RefusesWhatTheServiceRefuses) {
  const auto code = [&](std::string_view operation, const json::object& input) {
    return std::string(
        json_of(world_.call(operation, json::serialize(input), "Logs_20140328", "logs"))
            .at("__type")
            .as_string());
  };
  EXPECT_EQ(code("DescribeLogStreams", {{"logGroupName", "/aws/other"}}),
            "ResourceNotFoundException");
  EXPECT_EQ(code("DescribeLogStreams", {}), "InvalidParameterException");
  EXPECT_EQ(code("DescribeLogStreams",
                 {{"logGroupName", "/aws/sagemaker/TrainingJobs"}, {"nextToken", "zz"}}),
            "InvalidParameterException");
  EXPECT_EQ(code("DescribeLogStreams", {{"logGroupName", "/aws/sagemaker/TrainingJobs"},
                                        {"orderBy", "LastEventTime"},
                                        {"logStreamNamePrefix", "a"}}),
            "InvalidParameterException");
  world_.jobs.logs_error = Error{Code::kNotFound, "no stream"};
  EXPECT_EQ(code("GetLogEvents",
                 {{"logGroupName", "/aws/sagemaker/TrainingJobs"}, {"logStreamName", "x"}}),
            "ResourceNotFoundException");
}

TEST_F(LogsTest, TheGroupMayBeGivenByItsArn) {
  const json::value reply = json_of(world_.call(
      "DescribeLogStreams",
      R"({"logGroupIdentifier":"arn:aws:logs:us-west-2:000000000000:log-group:/aws/sagemaker/TrainingJobs"})",
      "Logs_20140328", "logs"));
  EXPECT_EQ(reply.at("logStreams").as_array().size(), 3U);
}

TEST_F(LogsTest, EventsComeWithBothTokensAndValidText) {
  world_.jobs.log_page = {
      {{from_epoch_milliseconds(1796022355123), "loss=0.5 \xFF", 0}}, "f/42", "b/0"};
  const json::value reply = call("GetLogEvents", {{"logStreamName", "a/algo-1-1"},
                                                  {"startTime", 5},
                                                  {"endTime", 9223372036854775807},
                                                  {"startFromHead", true},
                                                  {"limit", 3}});
  EXPECT_EQ(reply.at("events").at(0).at("timestamp"), 1796022355123);
  EXPECT_EQ(reply.at("events").at(0).at("message"), "loss=0.5 \xEF\xBF\xBD");
  EXPECT_EQ(reply.at("nextForwardToken"), "f/42");
  EXPECT_EQ(reply.at("nextBackwardToken"), "b/0");
  const jobs::LogQuery& query = world_.jobs.last_logs;
  EXPECT_EQ(query.stream, "a/algo-1-1");
  EXPECT_EQ(query.start, from_epoch_milliseconds(5));
  EXPECT_GT(query.end, from_epoch_milliseconds(1796022355123));
  EXPECT_TRUE(query.from_head);
  EXPECT_EQ(query.limit, 3U);
}

TEST_F(LogsTest, AReadWithoutLimitsAsksForTenThousandEventsFromTheEnd) {
  world_.jobs.log_page = {{}, "f/0", "b/0"};
  const json::value reply = call("GetLogEvents", {{"logStreamName", "a/algo-1-1"}});
  EXPECT_TRUE(reply.at("events").as_array().empty());
  EXPECT_EQ(world_.jobs.last_logs.limit, 10000U);
  EXPECT_FALSE(world_.jobs.last_logs.from_head);
  EXPECT_FALSE(world_.jobs.last_logs.start.has_value());
}

}  // namespace
}  // namespace atelier::api
