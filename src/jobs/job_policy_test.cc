#include "jobs/job_policy.h"

#include <gtest/gtest.h>

#include "access/resources.h"
#include "base/json.h"

namespace atelier::jobs {
namespace {

using access::Decision;
using access::s3_bucket_arn;
using access::s3_object_arn;

json::object channel(std::string_view uri, std::string_view type = "S3Prefix") {
  return {{"ChannelName", "c"},
          {"DataSource", {{"S3DataSource", {{"S3Uri", uri}, {"S3DataType", type}}}}}};
}

class JobPolicyTest : public ::testing::Test {
 protected:
  JobPolicyTest() {
    request_ = {{"TrainingJobName", "job-1"},
                {"InputDataConfig",
                 json::array{channel("s3://data/train/"), channel("s3://data/odd*prefix")}},
                {"HyperParameters",
                 {{"sagemaker_submit_directory", "\"s3://code/job-1/source/sourcedir.tar.gz\""}}},
                {"OutputDataConfig", {{"S3OutputPath", "s3://out/models/"}}},
                {"CheckpointConfig", {{"S3Uri", "s3://ckpt/run"}}},
                {"DebugHookConfig", {{"S3OutputPath", "s3://debug"}}},
                {"ProfilerConfig", {{"S3OutputPath", "s3://profile/a"}}},
                {"TensorBoardOutputConfig", {{"S3OutputPath", "s3://tb/runs"}}}};
  }
  bool may(std::string_view action, const std::string& resource,
           std::optional<std::string_view> prefix = {}) {
    const access::Policy policy = job_policy(json::serialize(request_)).value();
    const std::pair<std::string_view, std::string_view> context[] = {
        {"s3:prefix", prefix.value_or("")}};
    if (!prefix) return policy.decide({action, resource}) == Decision::kAllowed;
    return policy.decide({action, resource, context}) == Decision::kAllowed;
  }
  bool may_read(std::string_view bucket, std::string_view key) {
    return may("s3:GetObject", s3_object_arn(bucket, key));
  }
  bool may_write(std::string_view bucket, std::string_view key) {
    return may("s3:PutObject", s3_object_arn(bucket, key));
  }
  bool may_remove(std::string_view bucket, std::string_view key) {
    return may("s3:DeleteObject", s3_object_arn(bucket, key));
  }
  bool may_list(std::string_view bucket, std::string_view prefix) {
    return may("s3:ListBucket", s3_bucket_arn(bucket), prefix);
  }
  json::object request_;
};

TEST_F(JobPolicyTest, ChannelsAndSourceAreRead) {
  EXPECT_TRUE(may_read("data", "train/a/1.jpg"));
  EXPECT_TRUE(may_list("data", "train/"));
  EXPECT_TRUE(may_list("data", "train/a"));
  EXPECT_FALSE(may_read("data", "train2/a"));
  EXPECT_FALSE(may_read("data", "other"));
  EXPECT_FALSE(may_list("data", ""));
  EXPECT_FALSE(may_list("data", "tra"));
  EXPECT_FALSE(may_write("data", "train/a"));
  EXPECT_FALSE(may_remove("data", "train/a"));
  EXPECT_TRUE(may_read("data", "odd*prefix/1"));
  EXPECT_FALSE(may_read("data", "oddXprefix/1")) << "a star in a key is a star";
  EXPECT_TRUE(may_read("code", "job-1/source/sourcedir.tar.gz"));
  EXPECT_FALSE(may_read("code", "job-1/source/sourcedir.tar.gz2"));
}

TEST_F(JobPolicyTest, OutputsAreWrittenBelowTheJobsName) {
  EXPECT_TRUE(may_write("out", "models/job-1/output/model.tar.gz"));
  EXPECT_TRUE(may("s3:AbortMultipartUpload", s3_object_arn("out", "models/job-1/x")));
  EXPECT_FALSE(may_write("out", "models/job-2/output/model.tar.gz"));
  EXPECT_FALSE(may_write("out", "models/job-12/output/model.tar.gz"));
  EXPECT_FALSE(may_write("out", "job-1/x"));
  EXPECT_FALSE(may_read("out", "models/job-2/output/model.tar.gz"));
  EXPECT_FALSE(may_remove("out", "models/job-1/output/model.tar.gz"));
  EXPECT_TRUE(may_write("debug", "job-1/debug-output/x"));
  EXPECT_FALSE(may_write("debug", "job-2/debug-output/x"));
  EXPECT_TRUE(may_write("profile", "a/job-1/profiler-output/x"));
  EXPECT_TRUE(may_write("tb", "runs/job-1/tensorboard-output/x"));
  EXPECT_FALSE(may_write("tb", "runs/job-2/x"));
}

TEST_F(JobPolicyTest, CheckpointsAreReadWrittenListedAndRemoved) {
  EXPECT_TRUE(may_read("ckpt", "run/1.pt"));
  EXPECT_TRUE(may_write("ckpt", "run/1.pt"));
  EXPECT_TRUE(may_remove("ckpt", "run/1.pt"));
  EXPECT_TRUE(may_list("ckpt", "run/"));
  EXPECT_FALSE(may_list("ckpt", "run"));
  EXPECT_FALSE(may_read("ckpt", "run2/1.pt"));
  EXPECT_FALSE(may_remove("ckpt", "runs"));
}

TEST_F(JobPolicyTest, AManifestReachesTheObjectsOfItsBucket) {
  request_["InputDataConfig"] =
      json::array{channel("s3://data/lists/one.manifest", "ManifestFile")};
  EXPECT_TRUE(may_read("data", "lists/one.manifest"));
  EXPECT_TRUE(may_read("data", "pictures/1.jpg"));
  EXPECT_FALSE(may_read("elsewhere", "pictures/1.jpg"));
  EXPECT_TRUE(may_list("data", "pictures/")) << "sizes and ETags come from listings";
  EXPECT_FALSE(may_list("elsewhere", "pictures/"));
}

TEST_F(JobPolicyTest, NothingElseIsAllowedWhateverTheRequestLacks) {
  for (const char* action : {"sagemaker:CreateTrainingJob", "iam:GetRole", "s3:ListAllMyBuckets",
                             "s3:CreateBucket", "logs:GetLogEvents", "sts:AssumeRole"}) {
    EXPECT_FALSE(may(action, "*")) << action;
  }
  request_ = {{"TrainingJobName", "job-1"}, {"OutputDataConfig", "s3://out"}};
  EXPECT_FALSE(may_read("out", "job-1/x"));
  EXPECT_FALSE(may("s3:CreateBucket", "arn:aws:s3:::x"));
  EXPECT_FALSE(job_policy("["));
}

}  // namespace
}  // namespace atelier::jobs
