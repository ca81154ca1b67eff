// Search with its expressions, tags, UpdateTrainingJob and DeleteTrainingJob: what changes or finds
// jobs after their create.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/internal/fake_parts.h"
#include "api/search_expression.h"

namespace atelier::api {
namespace {

using internal::json_of;
using internal::training_request;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const Shape& training_job_shape() {
  const Operation* search = find_operation(*find_service("sagemaker"), "Search");
  return *member_of(*member_of(*search->output, "Results")->shape->element, "TrainingJob")->shape;
}

json::value document() {
  return parse_json(R"({
    "TrainingJobName": "shirts-7", "TrainingJobStatus": "Completed", "CreationTime": 1796022000.5,
    "EnableManagedSpotTraining": true, "ResourceConfig": {"InstanceCount": 2},
    "HyperParameters": {"lr": "0.01", "a.b": "x", "opt": "\"adam\""},
    "FinalMetricDataList": [{"MetricName": "validation:accuracy", "Value": 0.91}],
    "Tags": [{"Key": "team", "Value": "search"}],
    "InputDataConfig": [
      {"ChannelName": "train", "DataSource": {"S3DataSource": {"S3Uri": "s3://data/train"}}},
      {"ChannelName": "test", "DataSource": {"S3DataSource": {"S3Uri": "s3://data/test"}}}]})")
      .value();
}

// Whether the document matches; an error's message otherwise.
std::string verdict(const char* expression) {
  const json::value request = {{"SearchExpression", parse_json(expression).value()}};
  const auto read = SearchExpression::read(request, training_job_shape());
  if (!read) return read.error().message;
  return read->matches(document()) ? "yes" : "no";
}

std::string filter(const char* name, const char* operation, const char* value = nullptr) {
  json::object one{{"Name", name}};
  if (*operation != '\0') one["Operator"] = operation;
  if (value != nullptr) one["Value"] = value;
  return verdict(json::serialize(json::object{{"Filters", json::array{one}}}).c_str());
}

TEST(SearchExpressionTest, EachOperatorDoesWhatItSays) {
  EXPECT_EQ(filter("TrainingJobName", "Equals", "shirts-7"), "yes");
  EXPECT_EQ(filter("TrainingJobName", "", "shirts-7"), "yes");
  EXPECT_EQ(filter("TrainingJobName", "Equals", "shirts"), "no");
  EXPECT_EQ(filter("TrainingJobName", "NotEquals", "shirts"), "yes");
  EXPECT_EQ(filter("TrainingJobName", "Contains", "hirt"), "yes");
  EXPECT_EQ(filter("TrainingJobName", "Contains", "HIRT"), "no");
  EXPECT_EQ(filter("TrainingJobName", "In", "a,shirts-7,b"), "yes");
  EXPECT_EQ(filter("TrainingJobName", "In", "a,b"), "no");
  EXPECT_EQ(filter("FailureReason", "Exists"), "no");
  EXPECT_EQ(filter("FailureReason", "NotExists"), "yes");
  EXPECT_EQ(filter("FailureReason", "NotEquals", "x"), "yes");
  EXPECT_EQ(filter("EnableManagedSpotTraining", "Equals", "true"), "yes");
}

TEST(SearchExpressionTest, NumbersTimesAndHyperparametersCompareAsNumbers) {
  EXPECT_EQ(filter("Metrics.validation:accuracy", "GreaterThan", "0.9"), "yes");
  EXPECT_EQ(filter("Metrics.validation:accuracy", "GreaterThan", "0.91"), "no");
  EXPECT_EQ(filter("Metrics.validation:accuracy", "GreaterThanOrEqualTo", "0.910"), "yes");
  EXPECT_EQ(filter("Metrics.other", "GreaterThan", "0"), "no");
  EXPECT_EQ(filter("HyperParameters.lr", "LessThan", "0.1"), "yes");
  EXPECT_EQ(filter("HyperParameters.lr", "Equals", "1e-2"), "yes");
  EXPECT_EQ(filter("HyperParameters.opt", "LessThan", "5"), "no");
  EXPECT_EQ(filter("HyperParameters.a.b", "Equals", "x"), "yes");
  EXPECT_EQ(filter("ResourceConfig.InstanceCount", "LessThanOrEqualTo", "2"), "yes");
  EXPECT_EQ(filter("CreationTime", "GreaterThan", "2026-11-30T00:00:00Z"), "yes");
  EXPECT_EQ(filter("CreationTime", "LessThan", "2026-11-30T00:00:00"), "no");
  EXPECT_EQ(filter("CreationTime", "LessThan", "2026-12-01"), "yes");
}

TEST(SearchExpressionTest, TagsAndElementsOfLists) {
  EXPECT_EQ(filter("Tags.team", "Equals", "search"), "yes");
  EXPECT_EQ(filter("Tags.owner", "Exists"), "no");
  EXPECT_EQ(filter("Tags.Key", "Equals", "team"), "yes");
  EXPECT_EQ(filter("InputDataConfig.ChannelName", "Equals", "test"), "yes");
  // Both hold of some element; nested, both must hold of one.
  const char* both = R"({"Filters": [
    {"Name": "InputDataConfig.ChannelName", "Value": "train"},
    {"Name": "InputDataConfig.DataSource.S3DataSource.S3Uri", "Value": "s3://data/test"}]})";
  const char* nested = R"({"NestedFilters": [{"NestedPropertyName": "InputDataConfig", "Filters": [
    {"Name": "InputDataConfig.ChannelName", "Value": "train"},
    {"Name": "InputDataConfig.DataSource.S3DataSource.S3Uri", "Value": "s3://data/test"}]}]})";
  EXPECT_EQ(verdict(both), "yes");
  EXPECT_EQ(verdict(nested), "no");
}

TEST(SearchExpressionTest, AndOrAndSubExpressions) {
  EXPECT_EQ(verdict(R"({"Operator": "Or", "Filters": [
    {"Name": "TrainingJobName", "Value": "x"}, {"Name": "TrainingJobStatus", "Value": "Completed"}]})"),
            "yes");
  EXPECT_EQ(verdict(R"({"Filters": [
    {"Name": "TrainingJobName", "Value": "x"}, {"Name": "TrainingJobStatus", "Value": "Completed"}]})"),
            "no");
  EXPECT_EQ(verdict(R"({"Operator": "And", "SubExpressions": [
    {"Operator": "Or", "Filters": [{"Name": "TrainingJobName", "Value": "x"},
                                   {"Name": "Tags.team", "Value": "search"}]},
    {"Filters": [{"Name": "HyperParameters.lr", "Operator": "Exists"}]}]})"),
            "yes");
}

TEST(SearchExpressionTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(filter("TrainingJobNam", "Equals", "x"),
              HasSubstr("Unknown property name: 'TrainingJobNam'"));
  EXPECT_THAT(filter("TrainingJobName.x", "Equals", "x"), HasSubstr("'TrainingJobName.x'"));
  EXPECT_THAT(filter("TrainingJobName", "Equals"), HasSubstr("operator Equals needs a Value"));
  EXPECT_THAT(filter("TrainingJobName", "Exists", "x"), HasSubstr("takes no Value"));
  EXPECT_THAT(verdict("{}"), HasSubstr("at least one of"));
  EXPECT_THAT(verdict(R"({"NestedFilters": [{"NestedPropertyName": "InputDataConfig",
                          "Filters": [{"Name": "TrainingJobName", "Value": "x"}]}]})"),
              HasSubstr("'TrainingJobName' is not a property inside of 'InputDataConfig'"));
  json::array many;
  for (int i = 0; i < 101; ++i) many.push_back({{"Name", "RoleArn"}, {"Value", "x"}});
  EXPECT_THAT(verdict(json::serialize(json::object{{"Filters", many}}).c_str()),
              HasSubstr("more than 100 filters"));
}

class JobChangeTest : public ::testing::Test {
 protected:
  JobChangeTest() {
    world_.call("CreateTrainingJob", json::serialize(training_request("job-1")));
    world_.call("CreateTrainingJob", json::serialize(training_request("job-2")));
  }
  http::Response call(std::string_view operation, const json::object& input) const {
    return world_.call(operation, json::serialize(input));
  }
  std::string error_of(const http::Response& response) const {
    if (response.status == 200) return "";
    const json::value body = json_of(response);
    return fmt::format("{}: {}", body.at("__type").as_string().c_str(),
                       body.at("message").as_string().c_str());
  }
  std::vector<std::string> found(const json::object& request) const {
    std::vector<std::string> names;
    const json::value reply = json_of(call("Search", request));
    for (const json::value& row : reply.at("Results").as_array()) {
      names.emplace_back(row.at("TrainingJob").at("TrainingJobName").as_string());
    }
    return names;
  }
  std::string arn(std::string_view name = "job-1") const {
    return fmt::format("arn:aws:sagemaker:us-west-2:000000000000:training-job/{}", name);
  }
  std::string tags() const {
    return json::serialize(json_of(call("ListTags", {{"ResourceArn", arn()}})).at("Tags"));
  }
  jobs::TrainingJob& job(const std::string& name = "job-1") { return world_.jobs.by_name.at(name); }

  internal::FakeWorld world_;
};

TEST_F(JobChangeTest, SearchFindsJobsAndShowsTheirTags) {
  job("job-2").status = "Completed";
  const json::object filter{{"Name", "TrainingJobStatus"}, {"Value", "Completed"}};
  const json::object request{{"Resource", "TrainingJob"},
                             {"SearchExpression", {{"Filters", json::array{filter}}}}};
  EXPECT_THAT(found(request), ElementsAre("job-2"));
  EXPECT_EQ(world_.jobs.last_list.status_equals, "Completed");
  EXPECT_EQ(world_.jobs.last_list.sort_by, jobs::ListQuery::SortBy::kModifiedTime);
  EXPECT_FALSE(world_.jobs.last_list.ascending);
  const json::value reply = json_of(call("Search", request));
  const json::value& row = reply.at("Results").at(0).at("TrainingJob");
  EXPECT_EQ(json::serialize(row.at("Tags")), R"([{"Key":"team","Value":"search"}])");
  EXPECT_THAT(found({{"Resource", "Experiment"}}), ElementsAre());
  EXPECT_THAT(
      found({{"Resource", "TrainingJob"},
             {"VisibilityConditions", json::array{{{"Key", "Tags.team"}, {"Value", "other"}}}}}),
      ElementsAre());
}

TEST_F(JobChangeTest, SearchFindsJobsByTheirWarmPoolsAndShowsThem) {
  job("job-1").warm.status = "Available";
  job("job-2").warm.status = "Reused";
  job("job-2").warm.reused_by = "job-3";
  world_.call("CreateTrainingJob", json::serialize(training_request("without")));
  const auto by = [](const json::object& filter) {
    return json::object{{"Resource", "TrainingJob"},
                        {"SearchExpression", {{"Filters", json::array{filter}}}}};
  };
  EXPECT_THAT(found(by({{"Name", "WarmPoolStatus.Status"}, {"Value", "Available"}})),
              ElementsAre("job-1"));
  EXPECT_EQ(world_.jobs.last_list.warm_status_equals, "Available");
  EXPECT_THAT(found(by({{"Name", "WarmPoolStatus.Status"}, {"Operator", "NotExists"}})),
              ElementsAre("without"));
  const json::object reused = by({{"Name", "WarmPoolStatus.ReusedByJob"}, {"Value", "job-3"}});
  const json::value row = json_of(call("Search", reused)).at("Results").at(0).at("TrainingJob");
  EXPECT_EQ(row.at("TrainingJobName"), "job-2");
  EXPECT_EQ(row.at("WarmPoolStatus").at("Status"), "Reused");
  json::object sorted{{"Resource", "TrainingJob"}, {"SortBy", "WarmPoolStatus.Status"}};
  EXPECT_THAT(found(sorted), ElementsAre("job-2", "job-1", "without"));
}

TEST_F(JobChangeTest, SearchSortsByWhatOnlyTheDocumentHasAndPages) {
  job("job-1").final_metrics = {{"loss", 0.5, Time{}}};
  job("job-2").final_metrics = {{"loss", 10, Time{}}};
  world_.call("CreateTrainingJob", json::serialize(training_request("without")));
  json::object request{
      {"Resource", "TrainingJob"}, {"SortBy", "Metrics.loss"}, {"SortOrder", "Ascending"}};
  EXPECT_THAT(found(request), ElementsAre("job-1", "job-2", "without"));
  request["SortOrder"] = "Descending";
  EXPECT_THAT(found(request), ElementsAre("job-2", "job-1", "without"));
  request["MaxResults"] = 2;
  const json::value first = json_of(call("Search", request));
  EXPECT_EQ(first.at("Results").as_array().size(), 2U);
  request["NextToken"] = first.at("NextToken");
  EXPECT_THAT(found(request), ElementsAre("without"));
  request["SortBy"] = "Metrics.other";
  EXPECT_THAT(error_of(call("Search", request)), HasSubstr("NextToken"));
  request["SortBy"] = "Nothing";
  EXPECT_THAT(error_of(call("Search", request)), HasSubstr("SortBy 'Nothing'"));
}

TEST_F(JobChangeTest, SuggestionsKnowTheModelAndTheJobs) {
  const json::value reply = json_of(
      call("GetSearchSuggestions",
           {{"Resource", "TrainingJob"},
            {"SuggestionQuery", {{"PropertyNameQuery", {{"PropertyNameHint", "HyperParam"}}}}}}));
  std::vector<std::string> names;
  for (const json::value& row : reply.at("PropertyNameSuggestions").as_array()) {
    names.emplace_back(row.at("PropertyName").as_string());
  }
  EXPECT_THAT(names, ElementsAre("HyperParameters.lr", "HyperParameters.sagemaker_program"));
}

TEST_F(JobChangeTest, TagsAreAddedReplacedAndDeleted) {
  EXPECT_EQ(tags(), R"([{"Key":"team","Value":"search"}])");
  const auto added = call("AddTags", {{"ResourceArn", arn()},
                                      {"Tags", json::array{{{"Key", "team"}, {"Value", "ads"}},
                                                           {{"Key", "cost"}, {"Value", "7"}}}}});
  EXPECT_EQ(added.status, 200);
  EXPECT_EQ(tags(), R"([{"Key":"team","Value":"ads"},{"Key":"cost","Value":"7"}])");
  EXPECT_EQ(
      call("DeleteTags", {{"ResourceArn", arn()}, {"TagKeys", json::array{"team", "not-there"}}})
          .status,
      200);
  EXPECT_EQ(tags(), R"([{"Key":"cost","Value":"7"}])");
  EXPECT_EQ(job().modified, job("job-2").modified);  // a tag is not a change of the job
}

TEST_F(JobChangeTest, TagsThatCanNotBeAreRefused) {
  const auto add = [&](const json::array& all, const std::string& to) {
    return error_of(call("AddTags", {{"ResourceArn", to}, {"Tags", all}}));
  };
  const auto tag = [](std::string_view key) { return json::object{{"Key", key}, {"Value", "x"}}; };
  EXPECT_THAT(add({tag("aws:x")}, arn()), HasSubstr("Tag key 'aws:x'"));
  EXPECT_THAT(add({tag("a"), tag("a")}, arn()), HasSubstr("Duplicate tag key 'a'"));
  EXPECT_THAT(add({tag("a")}, arn("none")), HasSubstr("Requested resource not found"));
  EXPECT_THAT(add({tag("a")}, "arn:aws:sagemaker:eu-west-1:000000000000:training-job/job-1"),
              HasSubstr("Requested resource not found"));
  json::array fifty;
  for (int i = 0; i < 50; ++i) fifty.push_back(tag(std::to_string(i)));
  EXPECT_THAT(add(fifty, arn()), HasSubstr("would have 51 tags; a resource has at most 50"));
  EXPECT_EQ(tags(), R"([{"Key":"team","Value":"search"}])");
}

TEST_F(JobChangeTest, AnUpdateIsMergedIntoTheRequestAndShown) {
  const auto update = call("UpdateTrainingJob", {{"TrainingJobName", "job-1"},
                                                 {"ProfilerConfig", {{"DisableProfiler", true}}}});
  EXPECT_EQ(json_of(update).at("TrainingJobArn"), json::value(arn()));
  const json::value shown = json_of(call("DescribeTrainingJob", {{"TrainingJobName", "job-1"}}));
  EXPECT_EQ(shown.at("ProfilerConfig").at("DisableProfiler"), true);
  EXPECT_EQ(shown.at("ProfilerConfig").at("S3OutputPath"), "s3://out/prefix");
  EXPECT_GT(job().modified, job("job-2").modified);
}

TEST_F(JobChangeTest, RulesAndARemoteShellOfAnUpdateAreShownAndTheShellIsSaidToHaveNoEffect) {
  job().secondary_status = "Training";
  const json::array rules{{{"RuleConfigurationName", "ProfilerReport"},
                           {"RuleEvaluatorImage",
                            "000000000000.dkr.ecr.us-west-2.amazonaws.com/"
                            "sagemaker-debugger-rules:latest"},
                           {"RuleParameters", {{"rule_to_invoke", "ProfilerReport"}}}}};
  const auto update =
      call("UpdateTrainingJob", {{"TrainingJobName", "job-1"},
                                 {"ProfilerRuleConfigurations", rules},
                                 {"RemoteDebugConfig", {{"EnableRemoteDebug", true}}}});
  EXPECT_EQ(error_of(update), "");
  const json::value shown = json_of(call("DescribeTrainingJob", {{"TrainingJobName", "job-1"}}));
  EXPECT_EQ(shown.at("ProfilerRuleConfigurations"), json::value(rules));
  EXPECT_EQ(shown.at("RemoteDebugConfig").at("EnableRemoteDebug"), true);
  EXPECT_EQ(shown.at("ProfilingStatus"), "Disabled");
  const auto& first = shown.at("SecondaryStatusTransitions").at(0).at("StatusMessage").as_string();
  EXPECT_THAT(std::string(first), HasSubstr("RemoteDebugConfig has no effect"));
}

TEST_F(JobChangeTest, AnUpdateFitsTheStateOfTheJob) {
  const auto update = [&](const json::object& change) {
    json::object request{{"TrainingJobName", "job-1"}};
    for (const auto& [name, value] : change) request[name] = value;
    return error_of(call("UpdateTrainingJob", request));
  };
  const json::object debug{{"RemoteDebugConfig", {{"EnableRemoteDebug", true}}}};
  const json::object keep{{"ResourceConfig", {{"KeepAlivePeriodInSeconds", 60}}}};
  EXPECT_THAT(update(debug), HasSubstr("it is Starting"));
  job().secondary_status = "Training";
  EXPECT_EQ(update(debug), "");
  EXPECT_THAT(update(keep), HasSubstr("it was created without KeepAlivePeriodInSeconds"));
  job().warm.status = "InUse";
  EXPECT_EQ(update(keep), "");
  job().status = "Completed";
  job().warm.status = "Available";
  EXPECT_EQ(update(keep), "");
  job().warm.status = "Reused";
  EXPECT_THAT(update(keep), HasSubstr("its warm pool is Reused, not InUse or Available"));
  EXPECT_THAT(update({{"ProfilerConfig", {{"DisableProfiler", true}}}}),
              HasSubstr("ValidationException: Profiling of training job 'job-1'"));
  EXPECT_THAT(error_of(call("UpdateTrainingJob", {{"TrainingJobName", "none"}})),
              HasSubstr("Requested resource not found"));
}

TEST_F(JobChangeTest, AJobIsDeletedOnceItHasEnded) {
  EXPECT_EQ(call("DeleteTrainingJob", {{"TrainingJobName", "job-1"}}).status, 200);
  EXPECT_THAT(error_of(call("DeleteTrainingJob", {{"TrainingJobName", "job-1"}})),
              HasSubstr("ValidationException: Requested resource not found"));
  world_.jobs.remove_error = Error{Code::kFailedPrecondition, "it is InProgress"};
  EXPECT_EQ(error_of(call("DeleteTrainingJob", {{"TrainingJobName", "job-2"}})),
            "ResourceInUse: it is InProgress");
}

}  // namespace
}  // namespace atelier::api
