#include "cli/job_file.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"

namespace atelier::cli {
namespace {

TEST(JobFile, AShortFileBecomesCreateTrainingJobsBody) {
  const JobDescription job = *parse_job_file(
      "name: fashion\nalgorithm: image-classification\nchannels: {train: 's3://p/train/'}\n"
      "hyperparameters: {learning_rate: 0.10, epochs: 3}\nmetrics: {loss: 'loss=([0-9.]+)'}\n"
      "max_runtime: 60\noutput: s3://models/\n");
  const json::value request = *create_request(job, "fashion-1", "s3://d/", "");
  EXPECT_EQ(*find_string(request, "TrainingJobName"), "fashion-1");
  // The spelling of numbers is kept: hyperparameters are text on the wire.
  EXPECT_EQ(*find_string(request.at("HyperParameters"), "learning_rate"), "0.10");
  EXPECT_EQ(*find_string(request.at("OutputDataConfig"), "S3OutputPath"), "s3://models/");
  EXPECT_EQ(*find_int(request.at("StoppingCondition"), "MaxRuntimeInSeconds"), 60);
  EXPECT_EQ(request.at("InputDataConfig").as_array().size(), 1u);
  EXPECT_NE(find_string(request.at("AlgorithmSpecification"), "TrainingImage")
                ->find("image-classification"),
            std::string::npos);
}

TEST(JobFile, AScriptsHyperparametersAreJsonAsTheToolkitReadsThem) {
  const JobDescription job =
      *parse_job_file("script: train.py\nhyperparameters: {lr: 0.1, optimizer: adam}\n");
  const json::value request =
      *create_request(job, "j", "s3://d/", "s3://d/j/source/sourcedir.tar.gz");
  const json::value& parameters = request.at("HyperParameters");
  EXPECT_EQ(*find_string(parameters, "lr"), "0.1");
  EXPECT_EQ(*find_string(parameters, "optimizer"), "\"adam\"");
  EXPECT_EQ(*find_string(parameters, "sagemaker_program"), "\"train.py\"");
  EXPECT_EQ(*find_string(parameters, "sagemaker_submit_directory"),
            "\"s3://d/j/source/sourcedir.tar.gz\"");
}

TEST(JobFile, AFileInSageMakersOwnFormIsSentAsItIs) {
  const JobDescription job = *parse_job_file(
      "TrainingJobName: mine\nAlgorithmSpecification: {TrainingImage: x, TrainingInputMode: File}\n"
      "StoppingCondition: {MaxRuntimeInSeconds: 5}\nHyperParameters: {epochs: \"3\"}\n");
  const json::value request = *create_request(job, "other", "s3://d/", "");
  EXPECT_EQ(*find_string(request, "TrainingJobName"), "mine");
  EXPECT_TRUE(request.at("StoppingCondition").at("MaxRuntimeInSeconds").is_int64());
  EXPECT_TRUE(request.at("HyperParameters").at("epochs").is_string());
}

TEST(JobFile, WrongKeysAndValuesAreNamed) {
  EXPECT_NE(parse_job_file("chanels: {}\n").error().message.find("'chanels' is not known"),
            std::string::npos);
  EXPECT_NE(parse_job_file("max_runtime: soon\n").error().message.find("max_runtime"),
            std::string::npos);
  EXPECT_FALSE(parse_job_file("- a\n- b\n"));
  EXPECT_FALSE(parse_job_file("a: [\n"));
  EXPECT_FALSE(create_request(JobDescription{}, "n", "s3://d/", ""));
}

TEST(JobFile, ANameGetsATimeAndKeepsTheLimit) {
  JobDescription job;
  job.name = std::string(80, 'a');
  const std::string name = job_name(job, from_epoch_milliseconds(1796022355123));
  EXPECT_EQ(name.size(), 63u);
  EXPECT_TRUE(name.ends_with("-2026-11-30-07-05-55-123"));
}

TEST(JobFile, SourceIsPackedWithItsContentsAtTheRoot) {
  const TempFolder folder = *TempFolder::create();
  ASSERT_TRUE(make_folders(folder.path() / "src/lib"));
  ASSERT_TRUE(write_file_durably(folder.path() / "src/train.py", "print(1)"));
  ASSERT_TRUE(write_file_durably(folder.path() / "src/lib/a.py", "x = 1"));
  ASSERT_TRUE(pack_source(folder.path() / "src", folder.path() / "out.tar.gz"));
  const std::string listing = "tar tzf " + (folder.path() / "out.tar.gz").string() + " > " +
                              (folder.path() / "names").string();
  ASSERT_EQ(std::system(listing.c_str()), 0);
  EXPECT_EQ(*read_file(folder.path() / "names"), "lib/a.py\ntrain.py\n");
}

TEST(JobFile, ASourceFileOfAnyNameIsPackedOrRefusedByName) {
  const TempFolder folder = *TempFolder::create();
  make_folders(folder.path() / "src").value();
  const auto packed = [&] { return pack_source(folder.path() / "src", folder.path() / "out"); };
  for (const char* name : {"new\nline", "-rf", " ", "\xC3\xA9"}) {
    ASSERT_TRUE(write_file_durably(folder.path() / "src" / name, "x"));
  }
  const Result<void> good = packed();
  EXPECT_TRUE(good) << good.error().message;
  ASSERT_TRUE(write_file_durably(folder.path() / "src" / "bad\xFF", "x"));
  const Result<void> refused = packed();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("bad\uFFFD"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace atelier::cli
