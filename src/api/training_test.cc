#include "api/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "api/internal/fake_parts.h"
#include "api/text.h"

namespace atelier::api {
namespace {

using internal::json_of;
using internal::training_request;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainingTest : public ::testing::Test {
 protected:
  http::Response create(const json::object& request) const {
    return world_.call("CreateTrainingJob", json::serialize(request));
  }
  // "Code: message", or "" for a success.
  static std::string error_of(const http::Response& response) {
    if (response.status == 200) return "";
    const json::value body = json_of(response);
    return fmt::format("{}: {}", body.at("__type").as_string().c_str(),
                       body.at("message").as_string().c_str());
  }
  std::string create_error(const json::object& request) const { return error_of(create(request)); }
  json::object described(std::string_view name = "job-1") const {
    return json_of(world_.call("DescribeTrainingJob",
                               fmt::format(R"({{"TrainingJobName":"{}"}})", name)))
        .as_object();
  }
  jobs::TrainingJob& job(const std::string& name = "job-1") { return world_.jobs.by_name.at(name); }

  static json::object& channel(json::object& request) {
    return request["InputDataConfig"].as_array()[0].as_object();
  }
  static json::object& s3_source(json::object& request) {
    return channel(request)["DataSource"].as_object()["S3DataSource"].as_object();
  }

  internal::FakeWorld world_;
};

TEST_F(TrainingTest, CreateAnswersTheArn) {
  EXPECT_EQ(json::serialize(json_of(create(training_request()))),
            R"({"TrainingJobArn":"arn:aws:sagemaker:us-west-2:000000000000:training-job/job-1"})");
}

TEST_F(TrainingTest, CreateHandsOnOnlyWhatTheModelKnowsAndTheInvocationId) {
  json::object request = training_request();
  request["Unknown"] = 1;
  request["VpcConfig"] = nullptr;
  create(request);
  EXPECT_EQ(json::serialize(parse_json(job().request_json).value()).find("Unknown"),
            std::string::npos);
  EXPECT_EQ(job().invocation_id, "0f2b");
}

TEST_F(TrainingTest, ARetriedCreateGivesTheSameArnAndAnotherOneIsInUse) {
  EXPECT_EQ(create_error(training_request()), "");
  EXPECT_EQ(create_error(training_request()), "");
  json::object other = training_request();
  other["RoleArn"] = "arn:aws:iam::000000000000:role/other";
  EXPECT_EQ(create_error(other),
            "ResourceInUse: Training job names must be unique within an AWS account and region, "
            "and a training job with this name already exists "
            "(arn:aws:sagemaker:us-west-2:000000000000:training-job/job-1)");
}

TEST_F(TrainingTest, CreatePassesOnWhatJobsCanNotDo) {
  world_.jobs.create_error = Error{Code::kInvalidArgument, "image 'x' is not known; known are y"};
  EXPECT_EQ(create_error(training_request()),
            "ValidationException: image 'x' is not known; known are y");
  world_.jobs.create_error = Error{Code::kResourceExhausted, "more than the host has"};
  EXPECT_EQ(create_error(training_request()), "ResourceLimitExceeded: more than the host has");
  world_.jobs.create_error = Error{Code::kResourceExhausted, "the disk is full", Retry::kYes};
  EXPECT_EQ(create(training_request()).status, 503);
  world_.jobs.create_error = Error{Code::kIo, "disk"};
  EXPECT_EQ(create(training_request()).status, 500);
}

TEST_F(TrainingTest, MaxWaitGoesWithSpotAndIsNotBelowMaxRuntime) {
  json::object request = training_request();
  request["StoppingCondition"] = {{"MaxRuntimeInSeconds", 100}, {"MaxWaitTimeInSeconds", 99}};
  EXPECT_EQ(create_error(request),
            "ValidationException: Invalid MaxWaitTimeInSeconds. It is only supported when "
            "EnableManagedSpotTraining is set to true");
  request["EnableManagedSpotTraining"] = true;
  EXPECT_THAT(create_error(request), HasSubstr("99 is less than 100"));
  request["StoppingCondition"] = {{"MaxRuntimeInSeconds", 100}, {"MaxWaitTimeInSeconds", 100}};
  EXPECT_EQ(create_error(request), "");
}

TEST_F(TrainingTest, SpotNeedsNoMaxWait) {
  json::object request = training_request();
  request["EnableManagedSpotTraining"] = true;
  EXPECT_EQ(create_error(request), "");
}

TEST_F(TrainingTest, ChannelNamesAreUnique) {
  json::object request = training_request();
  json::array& channels = request["InputDataConfig"].as_array();
  channels.push_back(json::value(channels[0]));
  EXPECT_THAT(create_error(request), HasSubstr("Duplicate channel name 'training'"));
}

TEST_F(TrainingTest, UrisAreOfTheFormS3BucketPrefix) {
  json::object channels = training_request();
  s3_source(channels)["S3Uri"] = "https://bucket/x";
  EXPECT_THAT(create_error(channels),
              HasSubstr("channel 'training'.DataSource.S3DataSource.S3Uri 'https://bucket/x'"));
  json::object request = training_request();
  request["OutputDataConfig"] = {{"S3OutputPath", "https://bucket/x"}};
  EXPECT_THAT(create_error(request),
              HasSubstr("OutputDataConfig.S3OutputPath 'https://bucket/x' is not of the form"));
}

TEST_F(TrainingTest, WhatCanNotBeHonouredIsRefusedByNameAllAtOnce) {
  json::object request = training_request();
  channel(request)["DataSource"] = {{"FileSystemDataSource",
                                     {{"FileSystemId", "fs-0123456789abcdef0"},
                                      {"FileSystemType", "FSxLustre"},
                                      {"DirectoryPath", "/fsx/train"},
                                      {"FileSystemAccessMode", "ro"}}}};
  request["MlflowConfig"] = {
      {"MlflowResourceArn", "arn:aws:sagemaker:us-west-2:123456789012:mlflow-tracking-server/x"}};
  const std::string error = create_error(request);
  EXPECT_THAT(error,
              HasSubstr("This version of Atelier can not honour: InputDataConfig channel "
                        "'training'.DataSource.FileSystemDataSource 'fs-0123456789abcdef0'"));
  EXPECT_THAT(error, HasSubstr("MlflowConfig: "));
}

TEST_F(TrainingTest, EachUnservedMemberIsRefused) {
  const auto refused = [&](const std::function<void(json::object&)>& change,
                           std::string_view name) {
    json::object request = training_request();
    change(request);
    EXPECT_THAT(create_error(request), HasSubstr(std::string(name)));
  };
  refused([&](json::object& r) { channel(r)["InputMode"] = "Pipe"; }, "input mode 'Pipe'");
  refused([&](json::object& r) { s3_source(r)["S3DataType"] = "Converse"; },
          "S3DataType 'Converse'");
  refused([&](json::object& r) { s3_source(r)["S3DataType"] = "AugmentedManifestFile"; },
          "AttributeNames must be specified with AugmentedManifestFile");
  refused(
      [&](json::object& r) {
        s3_source(r)["S3DataType"] = "ManifestFile";
        channel(r)["InputMode"] = "FastFile";
      },
      "FastFile mode reads an S3Prefix, not ManifestFile");
  refused([&](json::object& r) { channel(r)["RecordWrapperType"] = "RecordIO"; },
          "RecordWrapperType 'RecordIO' works in Pipe mode only");
  refused([&](json::object& r) { channel(r)["CompressionType"] = "Gzip"; },
          "CompressionType 'Gzip' works in Pipe mode only; leave it unset or None in File mode, "
          "where the program finds each object as it is in S3, and decompress it there");
  refused(
      [](json::object& r) {
        r["AlgorithmSpecification"] = {{"TrainingInputMode", "File"}, {"AlgorithmName", "own"}};
      },
      "AlgorithmName 'own'");
  refused(
      [](json::object& r) {
        r["TensorBoardOutputConfig"] = {{"S3OutputPath", "s3://b/t"}, {"LocalPath", "tb"}};
      },
      "TensorBoardOutputConfig.LocalPath 'tb' has to be an absolute path");
  refused(
      [](json::object& r) {
        r["CheckpointConfig"] = {{"S3Uri", "https://b/t"}, {"LocalPath", "/opt/ml/input"}};
      },
      "CheckpointConfig.S3Uri 'https://b/t' is not of the form s3://bucket/prefix; "
      "CheckpointConfig.LocalPath '/opt/ml/input' is or lies below");
  refused(
      [](json::object& r) {
        r["ProfilerRuleConfigurations"] =
            json::array{{{"RuleConfigurationName", "loss"},
                         {"RuleEvaluatorImage", "x"},
                         {"RuleParameters", {{"action_json", "[]"}}}}};
      },
      "ProfilerRuleConfigurations rule 'loss'");
}

TEST_F(TrainingTest, AnImageOrAnAlgorithmIsNeededAndNotBoth) {
  json::object request = training_request();
  request["AlgorithmSpecification"] = {{"TrainingInputMode", "File"}};
  EXPECT_THAT(create_error(request), HasSubstr("Exactly one of TrainingImage and AlgorithmName"));
  request.erase("AlgorithmSpecification");
  EXPECT_THAT(create_error(request), HasSubstr("Exactly one of TrainingImage and AlgorithmName"));
}

TEST_F(TrainingTest, DescribeGivesBackTheRequestAndWhatTheSdkReads) {
  json::object request = training_request();
  request["CheckpointConfig"] = {{"S3Uri", "s3://ckpt/x"}, {"LocalPath", "/opt/ml/checkpoints"}};
  request["TensorBoardOutputConfig"] = {{"S3OutputPath", "s3://tb/x"}};
  create(request);
  const json::object reply = described();
  for (const char* echoed :
       {"CheckpointConfig", "TensorBoardOutputConfig", "HyperParameters", "AlgorithmSpecification",
        "RoleArn", "InputDataConfig", "ResourceConfig", "StoppingCondition", "DebugHookConfig",
        "ProfilerConfig"}) {
    EXPECT_EQ(reply.at(echoed), request.at(echoed)) << echoed;
  }
  EXPECT_EQ(reply.at("OutputDataConfig").at("KmsKeyId"), "");
  EXPECT_EQ(reply.at("EnableManagedSpotTraining"), false);
  EXPECT_EQ(reply.at("ModelArtifacts").at("S3ModelArtifacts"),
            "s3://out/job-1/output/model.tar.gz");
  EXPECT_FALSE(reply.contains("Tags"));
  EXPECT_FALSE(reply.contains("VpcConfig"));
  EXPECT_FALSE(reply.contains("FailureReason"));
  EXPECT_FALSE(reply.contains("TrainingTimeInSeconds"));
}

TEST_F(TrainingTest, DescribeNeverShowsEmptyInstanceGroupsAndAlwaysALimitOfTime) {
  json::object request = training_request();
  request["ResourceConfig"].as_object()["InstanceGroups"] = json::array{};
  request.erase("StoppingCondition");
  create(request);
  EXPECT_FALSE(described().at("ResourceConfig").as_object().contains("InstanceGroups"));
  EXPECT_EQ(described().at("StoppingCondition").at("MaxRuntimeInSeconds"), 86400);
}

TEST_F(TrainingTest, TrainingTimeIsNeverZero) {
  create(training_request());
  job().started = world_.clock.now();
  job().attempts.began = job().started;
  EXPECT_EQ(described().at("TrainingTimeInSeconds"), 1);
  world_.clock.time += std::chrono::milliseconds(61500);
  EXPECT_EQ(described().at("TrainingTimeInSeconds"), 62);
  job().attempts = jobs::Attempts{};
  job().attempts.trained = std::chrono::seconds(30);
  EXPECT_EQ(described().at("TrainingTimeInSeconds"), 30);
  EXPECT_EQ(described().at("BillableTimeInSeconds"), 30);
  world_.clock.time -= std::chrono::hours(1);  // a clock that jumped back
  job().attempts = jobs::Attempts{};
  job().attempts.began = job().started;
  EXPECT_EQ(described().at("TrainingTimeInSeconds"), 1);
}

TEST_F(TrainingTest, WarningsStandInTheFirstStatusMessage) {
  json::object request = training_request();
  request["VpcConfig"] = {{"Subnets", {"subnet-1"}}, {"SecurityGroupIds", {"sg-1"}}};
  create(request);
  job().warnings = {"asked 96 CPUs, gets 2"};
  job().transitions.push_back({"Training", "Training in progress.", Time{}, std::nullopt});
  const json::array transitions = described().at("SecondaryStatusTransitions").as_array();
  EXPECT_EQ(transitions.at(0).at("StatusMessage"),
            "Starting the training job (note: VpcConfig has no effect: the job uses this machine's "
            "network; asked 96 CPUs, gets 2)");
  EXPECT_EQ(transitions.at(1).at("StatusMessage"), "Training in progress.");

  // The SDK has printed the first message by then.
  job().warnings.emplace_back("metric 'loss' was never matched");
  job().status = "Completed";
  EXPECT_EQ(described().at("SecondaryStatusTransitions").at(1).at("StatusMessage"),
            "Training in progress. (note: asked 96 CPUs, gets 2; metric 'loss' was never matched)");
}

TEST_F(TrainingTest, WhichLimitsHoldIsSaidWhenTheProgramStarts) {
  create(training_request());
  job().limits = "cgroup v2: 2 CPUs, 8 GiB of memory; no network";
  job().transitions.push_back({"Training", "Training in progress.", Time{}, std::nullopt});
  const json::array transitions = described().at("SecondaryStatusTransitions").as_array();
  EXPECT_EQ(transitions.at(0).at("StatusMessage"), "Starting the training job");
  EXPECT_EQ(transitions.at(1).at("StatusMessage"),
            "Training in progress. Limits: cgroup v2: 2 CPUs, 8 GiB of memory; no network.");
}

TEST_F(TrainingTest, WhatTheSdkAlwaysSendsGetsNoNote) {
  EXPECT_THAT(jobs::request_notes(training_request()), ElementsAre());
}

TEST_F(TrainingTest, MembersWithoutAnEffectAreNoted) {
  json::object request = training_request();
  request["RemoteDebugConfig"] = {{"EnableRemoteDebug", true}};
  request["InfraCheckConfig"] = {{"EnableInfraCheck", false}};
  request["ExperimentConfig"] = {{"ExperimentName", "x"}};
  EXPECT_THAT(
      jobs::request_notes(request),
      ElementsAre("RemoteDebugConfig has no effect: this version of Atelier does not act on it",
                  "ExperimentConfig has no effect: there is no experiment tracker"));
}

TEST_F(TrainingTest, AMemberOfTomorrowsModelIsNotedToo) {
  json::object request = training_request();
  request["ResourceConfig"].as_object()["Hypothetical"] = 7;
  channel(request)["ShuffleConfig"] = {{"Seed", 3}};
  EXPECT_THAT(jobs::request_notes(request),
              ElementsAre("ResourceConfig.Hypothetical has no effect: this version of Atelier does "
                          "not act on it",
                          "InputDataConfig.ShuffleConfig has no effect: copied files have no "
                          "order; only with ShardedByS3Key it decides which instance gets what"));
}

TEST_F(TrainingTest, AFailureReasonIsCutToTheModelsLimitAndIsValidText) {
  create(training_request());
  job().status = "Failed";
  job().failure_reason = "AlgorithmError: \xFF" + std::string(5000, 'x');
  const json::object reply = described();
  EXPECT_EQ(count_characters(std::string(reply.at("FailureReason").as_string())), 1024U);
}

TEST_F(TrainingTest, AMetricThatIsNotANumberShowsNoValue) {
  create(training_request());
  job().final_metrics = {{"loss", 0.5, Time{}},
                         {"bad", std::numeric_limits<double>::quiet_NaN(), Time{}}};
  const json::array metrics = described().at("FinalMetricDataList").as_array();
  EXPECT_EQ(metrics.at(0).at("Value"), 0.5);
  EXPECT_FALSE(metrics.at(1).as_object().contains("Value"));
}

TEST_F(TrainingTest, AJobThatIsNotThereIsSaidInTheWordsThatClientsLookFor) {
  for (const char* operation : {"DescribeTrainingJob", "StopTrainingJob"}) {
    EXPECT_EQ(error_of(world_.call(operation, R"({"TrainingJobName":"none"})")),
              "ValidationException: Requested resource not found. Could not find training job "
              "'none'.");
  }
}

TEST_F(TrainingTest, StopAnswersNothingAndAnEndedJobIsRefused) {
  create(training_request());
  const http::Response stopped = world_.call("StopTrainingJob", R"({"TrainingJobName":"job-1"})");
  EXPECT_EQ(stopped.status, 200);
  EXPECT_EQ(internal::body_of(stopped), "");
  EXPECT_TRUE(job().stop_requested);
  job().status = "Completed";
  EXPECT_EQ(error_of(world_.call("StopTrainingJob", R"({"TrainingJobName":"job-1"})")),
            "ValidationException: The request was rejected because the training job is in status "
            "Completed");
}

TEST_F(TrainingTest, ListPassesEveryFilterOn) {
  create(training_request());
  world_.jobs.list_token = "more";
  const json::value reply = json_of(
      world_.call("ListTrainingJobs",
                  R"({"NameContains":"a","StatusEquals":"Failed","CreationTimeAfter":1.5,)"
                  R"("CreationTimeBefore":2,"LastModifiedTimeAfter":3,"LastModifiedTimeBefore":4,)"
                  R"("SortBy":"Name","SortOrder":"Descending","MaxResults":7,"NextToken":"t"})"));
  const jobs::ListQuery& query = world_.jobs.last_list;
  EXPECT_EQ(query.name_contains, "a");
  EXPECT_EQ(query.status_equals, "Failed");
  EXPECT_EQ(query.created_after, from_epoch_milliseconds(1500));
  EXPECT_EQ(query.created_before, from_epoch_milliseconds(2000));
  EXPECT_EQ(query.modified_after, from_epoch_milliseconds(3000));
  EXPECT_EQ(query.modified_before, from_epoch_milliseconds(4000));
  EXPECT_EQ(query.sort_by, jobs::ListQuery::SortBy::kName);
  EXPECT_FALSE(query.ascending);
  EXPECT_EQ(query.max_results, 7U);
  EXPECT_EQ(query.next_token, "t");
  EXPECT_EQ(reply.at("NextToken"), "more");
  EXPECT_EQ(reply.at("TrainingJobSummaries").at(0).at("TrainingJobName"), "job-1");
}

TEST_F(TrainingTest, AWarmPoolIsShownAndListedByItsStatus) {
  create(training_request());
  const auto describe = [&] {
    return json_of(world_.call("DescribeTrainingJob", R"({"TrainingJobName":"job-1"})"));
  };
  EXPECT_FALSE(describe().as_object().contains("WarmPoolStatus"));
  jobs::WarmPool& pool = world_.jobs.by_name["job-1"].warm;
  world_.jobs.steady_versions = true;
  pool.status = "Available";
  pool.keep_alive = std::chrono::seconds{600};
  pool.available = world_.clock.time - std::chrono::seconds{5};
  world_.jobs.by_name["job-1"].version = 2;
  const auto retained = [&] {
    return describe().at("WarmPoolStatus").at("ResourceRetainedBillableTimeInSeconds").as_int64();
  };
  EXPECT_EQ(retained(), 5);
  world_.clock.time += std::chrono::seconds{2};
  EXPECT_EQ(retained(), 7) << "it goes on without a new version of the record";
  pool.status = "Reused";
  pool.reused_by = "job-2";
  pool.retained = std::chrono::milliseconds{7001};
  const json::value reply =
      json_of(world_.call("ListTrainingJobs", R"({"WarmPoolStatusEquals":"Reused"})"));
  EXPECT_EQ(world_.jobs.last_list.warm_status_equals, "Reused");
  EXPECT_EQ(
      json::serialize(reply.at("TrainingJobSummaries").at(0).at("WarmPoolStatus")),
      R"({"Status":"Reused","ResourceRetainedBillableTimeInSeconds":8,"ReusedByJob":"job-2"})");
}

TEST_F(TrainingTest, ListTagsAnswersTheTagsOfTheCreation) {
  create(training_request());
  EXPECT_EQ(
      json::serialize(json_of(world_.call(
          "ListTags",
          R"({"ResourceArn":"arn:aws:sagemaker:us-west-2:000000000000:training-job/job-1"})"))),
      R"({"Tags":[{"Key":"team","Value":"search"}]})");
  EXPECT_THAT(
      error_of(world_.call(
          "ListTags", R"({"ResourceArn":"arn:aws:sagemaker:us-west-2:000000000000:model/job-1"})")),
      HasSubstr("Could not find"));
}

}  // namespace
}  // namespace atelier::api
