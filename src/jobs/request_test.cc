#include "jobs/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace atelier::jobs {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The request of a channel, an output and one instance, as the SDK sends it; tests change members.
json::object request() {
  return parse_json(R"({
    "TrainingJobName": "a",
    "AlgorithmSpecification": {
      "TrainingInputMode": "File",
      "TrainingImage": "433757028032.dkr.ecr.us-west-2.amazonaws.com/image-classification:1"},
    "InputDataConfig": [{"ChannelName": "train", "ContentType": "application/x-image",
      "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/train/"}}}],
    "OutputDataConfig": {"S3OutputPath": "s3://out/prefix/"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600}})")
      ->get_object();
}

class RequestTest : public ::testing::Test {
 protected:
  compute::InstanceTable instances_ = compute::builtin_instance_table();
  compute::RuntimeTable runtimes_;
  compute::HostCapacity host_{2, 8, 0};

  RequestTest() { runtimes_.vision_program = "/bin/atelier-vision"; }

  Result<Plan> plan(const json::object& object) {
    return plan_job(json::serialize(object),
                    {"us-west-2", "000000000000", instances_, runtimes_, host_},
                    from_epoch_milliseconds(1'796'022'355'123));
  }
  Error refusal(const json::object& object) {
    const Result<Plan> outcome = plan(object);
    return outcome ? Error{Code::kInternal, "not refused"} : outcome.error();
  }
};

TEST_F(RequestTest, APlainRequestBecomesASpec) {
  json::object object = request();
  object["HyperParameters"] = {{"epochs", "3"}};
  object["Environment"] = {{"A", "b"}};
  object["EnableNetworkIsolation"] = true;
  object["AlgorithmSpecification"].get_object()["ContainerEntrypoint"] = {"python3", "x.py"};
  object["AlgorithmSpecification"].get_object()["ContainerArguments"] = {"--v"};
  const auto planned = plan(object);
  ASSERT_TRUE(planned) << planned.error().message;
  const agent::AgentSpec& spec = planned->spec;
  EXPECT_EQ(spec.job_arn, "arn:aws:sagemaker:us-west-2:000000000000:training-job/a");
  EXPECT_EQ(spec.log_stream, "a/algo-1-1796022355");
  EXPECT_EQ(spec.hyperparameters.at("epochs"), "3");
  EXPECT_EQ(spec.environment.at("A"), "b");
  EXPECT_TRUE(spec.network_isolation);
  EXPECT_THAT(spec.container_entrypoint, ElementsAre("python3", "x.py"));
  EXPECT_THAT(spec.container_arguments, ElementsAre("--v"));
  ASSERT_EQ(spec.channels.size(), 1u);
  EXPECT_EQ(spec.channels[0].s3_uri, "s3://data/train/");
  EXPECT_EQ(spec.channels[0].content_type, "application/x-image");
  EXPECT_EQ(spec.max_runtime, std::chrono::seconds{3600});
  EXPECT_EQ(spec.stop_grace, std::chrono::seconds{120});  // as SageMaker's
  EXPECT_EQ(planned->model_uri, "s3://out/prefix/a/output/model.tar.gz");
  EXPECT_EQ(spec.output_s3_uri, "s3://out/prefix");
  EXPECT_EQ(planned->allocation.vcpus, 2);
  EXPECT_THAT(planned->warnings, IsEmpty());
}

TEST_F(RequestTest, AZeroCharacterIsRefusedByNameAndNoTextIsCut) {
  const auto with = [](const std::string& member, const json::value& value) {
    json::object object = request();
    object[member] = value;
    return object;
  };
  const std::string cut("a\0b", 3);
  const json::object variable = with("Environment", json::object{{"A", cut}});
  EXPECT_EQ(refusal(variable).code, Code::kInvalidArgument);
  EXPECT_EQ(refusal(variable).message,
            "the value of Environment.A has a zero character at byte 1, where programs would take "
            "it for ended");
  EXPECT_THAT(refusal(with("Environment", json::object{{cut, "x"}})).message,
              HasSubstr("the name 'a' of Environment has a zero character at byte 1"));
  EXPECT_THAT(refusal(with("HyperParameters", json::object{{"lr", cut}})).message,
              HasSubstr("the value of HyperParameters.lr has a zero character"));
  EXPECT_THAT(refusal(with("HyperParameters", json::object{{cut, "1"}})).message,
              HasSubstr("the name 'a' of HyperParameters has a zero character"));
  json::object arguments = request();
  arguments["AlgorithmSpecification"].get_object()["ContainerArguments"] = {"--x", cut};
  EXPECT_THAT(refusal(arguments).message,
              HasSubstr("the value of AlgorithmSpecification.ContainerArguments has a zero"));
}

TEST_F(RequestTest, AChannelThatWouldBeTheFolderItselfIsRefused) {
  for (const char* name : {".", ".."}) {
    json::object object = request();
    object["InputDataConfig"].get_array()[0].get_object()["ChannelName"] = name;
    EXPECT_EQ(refusal(object).code, Code::kInvalidArgument);
    EXPECT_THAT(refusal(object).message,
                HasSubstr("InputDataConfig channel '" + std::string{name} + "': it becomes"));
  }
}

TEST_F(RequestTest, UncompressedOutputIsAFolder) {
  json::object object = request();
  object["OutputDataConfig"].get_object()["CompressionType"] = "NONE";
  EXPECT_EQ(plan(object)->model_uri, "s3://out/prefix/a/output/model/");
  EXPECT_FALSE(plan(object)->spec.compress_output);
}

TEST_F(RequestTest, TheBuiltInAlgorithmBringsItsMetricsAndTheUsersCountFirst) {
  json::object object = request();
  object["AlgorithmSpecification"].get_object()["MetricDefinitions"] =
      json::array{{{"Name", "train:accuracy"}, {"Regex", "mine=(.*)"}}};
  const auto metrics = plan(object)->spec.metrics;
  std::vector<std::string> names;
  for (const auto& metric : metrics) names.push_back(metric.name);
  EXPECT_THAT(names, ElementsAre("train:accuracy", "train:loss"));
  EXPECT_EQ(metrics[0].regex, "mine=(.*)");

  json::object validation = object["InputDataConfig"].get_array()[0].get_object();
  validation["ChannelName"] = "validation";
  object["InputDataConfig"].get_array().push_back(validation);
  names.clear();
  const auto more = plan(object)->spec.metrics;
  for (const auto& metric : more) names.push_back(metric.name);
  EXPECT_THAT(names, Contains("validation:top_k_accuracy"));

  object["HyperParameters"] = {{"multi_label", "1"}};
  names.clear();
  const auto several = plan(object)->spec.metrics;
  for (const auto& metric : several) names.push_back(metric.name);
  EXPECT_THAT(names, Contains("validation:f1"));
  EXPECT_THAT(names, testing::Not(Contains("validation:top_k_accuracy")));
}

TEST_F(RequestTest, AnInstanceLargerThanTheHostIsCutWithWarnings) {
  json::object object = request();
  object["ResourceConfig"].get_object()["InstanceType"] = "ml.p4d.24xlarge";
  const auto planned = plan(object);
  EXPECT_EQ(planned->allocation.vcpus, 2);
  EXPECT_EQ(planned->spec.memory_gib, 8);
  EXPECT_EQ(planned->warnings.size(), 3u);
  instances_.strict = true;
  EXPECT_EQ(refusal(object).code, Code::kResourceExhausted);
}

TEST_F(RequestTest, InstancesHoldTheirSumAndGetTheirPartsOfWhatWasGranted) {
  json::object object = request();
  object["ResourceConfig"].get_object()["InstanceType"] = "ml.cpu.1x";
  object["ResourceConfig"].get_object()["InstanceCount"] = 2;
  auto planned = plan(object);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_EQ(planned->allocation.vcpus, 2);
  EXPECT_EQ(planned->terms.instance_count, 2);
  ASSERT_EQ(planned->spec.instances.size(), 2u);
  EXPECT_EQ(planned->spec.instances[1].host, "algo-2");
  EXPECT_EQ(planned->spec.vcpus, 1);
  grant(*planned, 1, planned->allocation.memory_gib, 0);
  EXPECT_EQ(planned->spec.vcpus, 0.5);
  EXPECT_EQ(planned->spec.instances[1].vcpus, 0.5);
}

TEST_F(RequestTest, GpusThatAJobWasGrantedAreItsOwnAtEachStart) {
  host_.gpus = 4;
  json::object object = request();
  object["ResourceConfig"].get_object()["InstanceType"] = "ml.gpu.2x";
  auto planned = plan(object);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_EQ(planned->allocation.gpus, 2);
  EXPECT_EQ(planned->spec.gpus, 2);
  grant(*planned, planned->allocation.vcpus, planned->allocation.memory_gib, 1);
  EXPECT_EQ(planned->spec.gpus, 1);
}

TEST_F(RequestTest, WhatIsAcceptedAndNotDoneIsSaid) {
  json::object object = request();
  object["EnableManagedSpotTraining"] = true;
  object["RetryStrategy"] = {{"MaximumRetryAttempts", 2}};
  object["ProfilerRuleConfigurations"] = json::array{json::object{}};
  object["OutputDataConfig"].get_object()["KmsKeyId"] = "key";
  object["InputDataConfig"].get_array()[0].get_object()["InputMode"] = "FastFile";
  EXPECT_THAT(
      plan(object)->warnings,
      ::testing::UnorderedElementsAre(HasSubstr("MaxWaitTimeInSeconds is not given: 90000"),
                                      HasSubstr("the instance table has no spot price of ml."),
                                      HasSubstr("without CheckpointConfig"), HasSubstr("Profiler"),
                                      HasSubstr("KmsKeyId"), HasSubstr("FastFile")));
}

// The policy of the job, Describe and the upload must mean the same place.
TEST_F(RequestTest, OutputsGoWhereTheJobMayWriteThem) {
  for (const char* path : {"s3://out", "s3://out/", "s3://out//", "s3://out/x", "s3://out/x//"}) {
    json::object object = request();
    object["OutputDataConfig"] = {{"S3OutputPath", path}};
    object["TensorBoardOutputConfig"] = {{"S3OutputPath", path}};
    const auto planned = plan(object);
    const std::string place =
        std::string_view(path).find('x') != std::string_view::npos ? "s3://out/x" : "s3://out";
    EXPECT_EQ(planned->model_uri, place + "/a/output/model.tar.gz");
    EXPECT_EQ(planned->spec.output_s3_uri, place);
    EXPECT_EQ(planned->spec.tensorboard->s3_uri, place);
  }
}

TEST_F(RequestTest, ASpotJobWithASpotPriceIsToldOfNoMissingOne) {
  json::object object = request();
  object["EnableManagedSpotTraining"] = true;
  for (compute::InstanceType& type : instances_.types) {
    type.spot_price_per_hour = type.price_per_hour / 3;
  }
  EXPECT_THAT(plan(object)->warnings, Not(Contains(HasSubstr("spot price"))));
}

TEST_F(RequestTest, FoldersThatAreCopiedWhileTheJobRunsGetTheirPlaces) {
  json::object object = request();
  EXPECT_FALSE(plan(object)->spec.checkpoints);
  object["CheckpointConfig"] = {{"S3Uri", "s3://ckpt/x"}};
  object["TensorBoardOutputConfig"] = {{"S3OutputPath", "s3://tb"}, {"LocalPath", "/tmp/tb"}};
  const auto planned = plan(object);
  EXPECT_EQ(planned->spec.checkpoints->s3_uri, "s3://ckpt/x");
  EXPECT_EQ(planned->spec.checkpoints->local_path, "/opt/ml/checkpoints");
  EXPECT_EQ(planned->spec.tensorboard->local_path, "/tmp/tb");
  const auto again = agent::parse_agent_spec(agent::to_json(planned->spec));
  EXPECT_EQ(again->checkpoints->local_path, "/opt/ml/checkpoints");
  EXPECT_EQ(again->tensorboard->s3_uri, "s3://tb");
  object["CheckpointConfig"] = {{"S3Uri", "s3://ckpt/x"}, {"LocalPath", "/etc"}};
  EXPECT_THAT(refusal(object).message, HasSubstr("CheckpointConfig.LocalPath '/etc' is or lies"));
}

TEST_F(RequestTest, WhatCannotBeDoneIsRefusedByName) {
  json::object file_system = request();
  file_system["InputDataConfig"].get_array()[0].get_object()["DataSource"] = {
      {"FileSystemDataSource", json::object{}}};
  EXPECT_EQ(refusal(file_system).code, Code::kUnimplemented);
  EXPECT_THAT(refusal(file_system).message, HasSubstr("FileSystemDataSource ''"));

  json::object pipe = request();
  pipe["AlgorithmSpecification"].get_object()["TrainingInputMode"] = "Pipe";
  EXPECT_THAT(refusal(pipe).message, HasSubstr("channel 'train': input mode 'Pipe'"));

  json::object none = request();
  none["ResourceConfig"].get_object()["InstanceCount"] = 0;
  EXPECT_THAT(refusal(none).message, HasSubstr("InstanceCount 0 must be from 1"));

  json::object manifest = request();
  manifest["InputDataConfig"]
      .get_array()[0]
      .get_object()["DataSource"]
      .get_object()["S3DataSource"]
      .get_object()["S3DataType"] = "Converse";
  EXPECT_THAT(refusal(manifest).message, HasSubstr("S3DataType 'Converse'"));
}

TEST_F(RequestTest, WhatIsWrongIsRefusedByName) {
  json::object type = request();
  type["ResourceConfig"].get_object()["InstanceType"] = "ml.nope";
  EXPECT_EQ(refusal(type).code, Code::kInvalidArgument);
  EXPECT_THAT(refusal(type).message, HasSubstr("'ml.nope'"));
  EXPECT_THAT(refusal(type).message, HasSubstr("ml.m5.large"));

  json::object image = request();
  image["AlgorithmSpecification"].get_object()["TrainingImage"] = "busybox";
  EXPECT_THAT(refusal(image).message, HasSubstr("busybox"));

  json::object wait = request();
  wait["StoppingCondition"].get_object()["MaxWaitTimeInSeconds"] = 7200;
  EXPECT_THAT(refusal(wait).message, HasSubstr("Invalid MaxWaitTimeInSeconds"));
  wait["EnableManagedSpotTraining"] = true;
  EXPECT_TRUE(plan(wait));
  wait["StoppingCondition"].get_object()["MaxWaitTimeInSeconds"] = 60;
  EXPECT_THAT(refusal(wait).message, HasSubstr("60 is less than 3600"));

  json::object twice = request();
  twice["InputDataConfig"].get_array().push_back(twice["InputDataConfig"].get_array()[0]);
  EXPECT_THAT(refusal(twice).message, HasSubstr("Duplicate channel name 'train'"));

  json::object uri = request();
  uri["OutputDataConfig"].get_object()["S3OutputPath"] = "/tmp/out";
  EXPECT_THAT(refusal(uri).message, HasSubstr("'/tmp/out'"));

  for (const char* name : {"", "..", "a/b", "-a", "a-", "a.b"}) {
    json::object bad = request();
    bad["TrainingJobName"] = name;
    EXPECT_EQ(refusal(bad).code, Code::kInvalidArgument) << name;
  }
  EXPECT_EQ(refusal({}).code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace atelier::jobs
