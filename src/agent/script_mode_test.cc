#include "agent/script_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace atelier::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ScriptInput article_job() {
  ScriptInput input;
  input.hyperparameters = {
      {"lr", "0.1"},
      {"opt", "\"adam\""},
      {"flag", "true"},
      {"sagemaker_program", "\"train.py\""},
      {"sagemaker_submit_directory", "\"s3://code/job/source/sourcedir.tar.gz\""},
      {"sagemaker_container_log_level", "20"},
      {"sagemaker_job_name", "\"job\""},
      {"sagemaker_region", "\"us-west-2\""}};
  input.resource_config_json =
      R"({"current_host":"algo-1","current_instance_type":"ml.p4d.24xlarge",
          "current_group_name":"homogeneousCluster","hosts":["algo-1"],
          "instance_groups":[{"instance_group_name":"homogeneousCluster",
                              "instance_type":"ml.p4d.24xlarge","hosts":["algo-1"]}],
          "network_interface_name":"eth0","topology":null})";
  input.input_data_config_json =
      R"({"training":{"TrainingInputMode":"File","S3DistributionType":"FullyReplicated",
                      "RecordWrapperType":"None"}})";
  input.environment = {{"TRAINING_JOB_NAME", "job"}, {"AWS_REGION", "us-west-2"}};
  input.framework_module = "sagemaker_pytorch_container.training:main";
  input.framework_version = "1.13.1";
  input.num_cpus = 2;
  return input;
}

ScriptJob must_read(const ScriptInput& input) {
  Result<ScriptJob> job = read_script_job(input);
  EXPECT_TRUE(job) << job.error().message;
  return job ? *std::move(job) : ScriptJob{};
}

TEST(ScriptMode, TheArticlesJobGetsItsVariablesAndItsCommand) {
  const ScriptJob job = must_read(article_job());
  EXPECT_EQ(job.source.kind, ScriptSource::Kind::kS3);
  EXPECT_EQ(job.source.location, "s3://code/job/source/sourcedir.tar.gz");
  EXPECT_EQ(job.environment.at("SM_CHANNEL_TRAINING"), "/opt/ml/input/data/training");
  EXPECT_EQ(job.environment.at("SM_MODEL_DIR"), "/opt/ml/model");
  EXPECT_EQ(job.environment.at("SM_HP_LR"), "0.1");
  EXPECT_EQ(job.environment.at("SM_HP_FLAG"), "true");
  EXPECT_EQ(job.environment.at("SM_HPS"), R"({"flag":true,"lr":0.1,"opt":"adam"})");
  EXPECT_EQ(job.environment.at("SM_USER_ARGS"), R"(["--flag","True","--lr","0.1","--opt","adam"])");
  EXPECT_EQ(job.environment.at("MASTER_ADDR"), "algo-1");
  EXPECT_EQ(job.environment.at("SM_DLC_TORCH_VERSION"), "1.13.1");
  EXPECT_EQ(job.environment.at("AWS_REGION"), "us-west-2");

  Result<ScriptPlan> plan = plan_script(job, CodeFolder{.has_entry_point = true});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->steps.size(), 1U);
  EXPECT_THAT(plan->steps[0].argv, ElementsAre("/usr/bin/python3", "--", "train.py", "--flag",
                                               "True", "--lr", "0.1", "--opt", "adam"));
  EXPECT_FALSE(plan->make_executable);
}

TEST(ScriptMode, OddValuesBecomePythonsWordsOnTheCommandLine) {
  ScriptInput input = article_job();
  input.hyperparameters = {{"sagemaker_program", "train.py"},  // no JSON: taken as it is
                           {"a", "null"},
                           {"b", "{\"y\": [1, null], \"x\": \"s\"}"},
                           {"c", "1E400"},
                           {"", "3"},
                           {"raw", "not json"}};
  const ScriptJob job = must_read(input);
  EXPECT_THAT(job.arguments, ElementsAre("", "3", "-a", "", "-b", "x=s,y=[1, None]", "-c", "inf",
                                         "--raw", "not json"));
  EXPECT_EQ(job.source.kind, ScriptSource::Kind::kNone);
}

TEST(ScriptMode, PackagesRequirementsAndCommandsStartAsTheToolkitStartsThem) {
  ScriptInput input = article_job();
  const ScriptJob script = must_read(input);
  const auto steps = [](const ScriptJob& job, CodeFolder code) {
    code.has_entry_point = true;
    Result<ScriptPlan> plan = plan_script(job, code);
    EXPECT_TRUE(plan) << plan.error().message;
    return plan ? plan->steps : std::vector<ScriptStep>{};
  };
  auto with_requirements = steps(script, CodeFolder{.has_requirements = true});
  ASSERT_EQ(with_requirements.size(), 2U);
  EXPECT_THAT(with_requirements[0].argv,
              ElementsAre("/usr/bin/python3", "-m", "pip", "install", "-r", "requirements.txt"));
  // setup.py wins over requirements.txt, which it takes along.
  auto package = steps(script, CodeFolder{.has_setup_py = true, .has_requirements = true});
  ASSERT_EQ(package.size(), 2U);
  EXPECT_THAT(package[0].argv, ElementsAre("/usr/bin/python3", "-m", "pip", "install", ".", "-r",
                                           "requirements.txt"));
  EXPECT_EQ(package[1].argv[2], "train");

  input.hyperparameters["sagemaker_program"] = "\"run.sh\"";
  input.hyperparameters["opt"] = "\"it's\"";
  const ScriptJob command = must_read(input);
  auto shell = steps(command, CodeFolder{.has_setup_py = true, .has_requirements = true});
  ASSERT_EQ(shell.size(), 1U);
  EXPECT_THAT(shell[0].argv,
              ElementsAre("/bin/sh", "-c", "./run.sh --flag True --lr 0.1 --opt 'it'\"'\"'s'"));
}

TEST(ScriptMode, AnInstallThatFailsSaysWherePackagesCouldComeFrom) {
  ScriptInput input = article_job();
  input.pip_advice = "put the packages into source_dir as wheels";
  const ScriptJob job = must_read(input);
  Result<ScriptPlan> plan =
      plan_script(job, CodeFolder{.has_requirements = true, .has_entry_point = true});
  ASSERT_TRUE(plan);
  EXPECT_THAT(failure_text(job, plan->steps.at(0), StepExit{.code = 1}, FailureCollector()),
              HasSubstr("ExtraInfo \"put the packages into source_dir as wheels\""));
  EXPECT_THAT(failure_text(job, plan->steps.at(1), StepExit{.code = 1}, FailureCollector()),
              Not(HasSubstr("ExtraInfo")));
}

TEST(ScriptMode, WhatCannotBeServedIsRefusedByName) {
  const auto refusal = [](const std::string& name, const std::string& value) {
    ScriptInput input = article_job();
    input.hyperparameters[name] = value;
    Result<ScriptJob> job = read_script_job(input);
    return job ? std::string("accepted") : job.error().message;
  };
  EXPECT_THAT(refusal("sagemaker_submit_directory", "\"file:///home/me/code\""),
              HasSubstr("'file:///home/me/code'"));
  EXPECT_THAT(refusal("sagemaker_submit_directory", "\"/opt/ml/input/data/../../etc\""),
              HasSubstr("must be an s3:// address"));
  EXPECT_THAT(refusal("sagemaker_program", "\"../train.py\""), HasSubstr("path segments"));
  EXPECT_THAT(refusal("sagemaker_program", "\"-c\""), HasSubstr("leading '-'"));
  EXPECT_THAT(refusal("sagemaker_program", "\"a b.py\""), HasSubstr("characters other than"));
  EXPECT_THAT(refusal("sagemaker_program", "\"\""), HasSubstr("is empty"));
  EXPECT_THAT(refusal("sagemaker_distributed_dataparallel_enabled", "true"),
              HasSubstr("distribution 'smdistributed.dataparallel'"));
  EXPECT_THAT(refusal("a=b", "1"), HasSubstr("'='"));
  EXPECT_THAT(refusal("a", "\"x\\u0000\""), HasSubstr("zero character"));
  EXPECT_THAT(refusal("a", "\"\\ud800\""), HasSubstr("unpaired surrogate"));
}

TEST(ScriptMode, AMissingEntryPointIsNamed) {
  Result<ScriptPlan> plan = plan_script(must_read(article_job()), CodeFolder{});
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("'train.py'"));
}

TEST(ScriptMode, TorchDistributedRunsUnderTorchrun) {
  ScriptInput input = article_job();
  input.hyperparameters["sagemaker_torch_distributed_enabled"] = "true";
  const ScriptJob job = must_read(input);
  Result<ScriptPlan> plan = plan_script(job, CodeFolder{.has_entry_point = true});
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->steps[0].argv,
              ElementsAre("torchrun", "--nnodes", "1", "--nproc_per_node", "1", "train.py",
                          "--flag", "True", "--lr", "0.1", "--opt", "adam"));
}

ScriptStep distributed(const std::map<std::string, std::string>& hyperparameters, bool mpirun,
                       const std::string& host = "algo-1", bool second_host = false) {
  ScriptInput input = article_job();
  for (const auto& [name, value] : hyperparameters) input.hyperparameters[name] = value;
  input.has_mpirun = mpirun;
  input.master_port = 7801;
  if (second_host) {
    input.resource_config_json = R"({"current_host":")" + host +
                                 R"(","hosts":["algo-1","algo-2"],"network_interface_name":"lo"})";
  }
  const ScriptJob job = must_read(input);
  Result<ScriptPlan> plan = plan_script(job, CodeFolder{.has_entry_point = true});
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? plan->steps.back() : ScriptStep{};
}

TEST(ScriptMode, TorchrunOfTwoHostsMeetsAtTheFirst) {
  const ScriptStep step =
      distributed({{"sagemaker_torch_distributed_enabled", "true"}}, false, "algo-2", true);
  const std::vector<std::string> start(step.argv.begin(), step.argv.begin() + 12);
  EXPECT_THAT(start,
              ElementsAre("torchrun", "--nnodes", "2", "--nproc_per_node", "1", "--master_addr",
                          "algo-1", "--master_port", "7801", "--node_rank", "1", "train.py"));
  EXPECT_EQ(step.environment.at("NCCL_SOCKET_IFNAME"), "lo");
}

TEST(ScriptMode, MpiWithoutMpirunStartsTheRanksOfItsHost) {
  const ScriptStep step =
      distributed({{"sagemaker_mpi_enabled", "true"},
                   {"sagemaker_mpi_num_of_processes_per_host", "3"},
                   {"sagemaker_mpi_custom_mpi_options", "\"--NCCL_DEBUG WARN -x A=b=c -verbose\""}},
                  false, "algo-2", true);
  const std::vector<std::string> start(step.argv.begin(), step.argv.begin() + 14);
  EXPECT_THAT(start, ElementsAre("/usr/bin/python3", "/opt/atelier/ranks.py", "--host", "algo-2",
                                 "--processes", "3", "--first", "3", "--total", "6", "--",
                                 "/usr/bin/python3", "--", "train.py"));
  EXPECT_THAT(step.files.at("/opt/atelier/ranks.py"), HasSubstr("OMPI_COMM_WORLD_RANK"));
  EXPECT_EQ(step.environment.at("NCCL_DEBUG"), "WARN");
  EXPECT_EQ(step.environment.at("A"), "b=c");
}

TEST(ScriptMode, PyTorchDdpStartsRanksThatTorchKnows) {
  const ScriptStep step = distributed({{"sagemaker_pytorch_ddp_enabled", "true"}}, true);
  EXPECT_THAT(step.argv, testing::Contains("--torch"));
  EXPECT_EQ(step.argv[1], "/opt/atelier/ranks.py");
}

TEST(ScriptMode, ACountOfProcessesIsBounded) {
  const auto refusal = [](const std::string& name, const std::string& value) {
    ScriptInput input = article_job();
    input.hyperparameters["sagemaker_mpi_enabled"] = "true";
    input.hyperparameters[name] = value;
    Result<ScriptJob> job = read_script_job(input);
    return job ? std::string("accepted") : job.error().message;
  };
  EXPECT_THAT(refusal("sagemaker_mpi_num_of_processes_per_host", "100000"),
              HasSubstr("is 100000: it must be a number from 1 to 1024"));
  EXPECT_THAT(refusal("sagemaker_mpi_num_of_processes_per_host", "\"two\""),
              HasSubstr("is \"two\""));
  EXPECT_THAT(refusal("sagemaker_mpi_num_of_processes_per_host", "-2"), HasSubstr("is -2"));
  EXPECT_THAT(refusal("sagemaker_mpi_num_processes", "5"), HasSubstr("is 5, and 1 hosts with 1"));
  EXPECT_EQ(refusal("sagemaker_mpi_num_of_processes_per_host", "0"), "accepted");  // the default
}

TEST(ScriptMode, ALinkThatLeavesTheSourceFindsNothing) {
  const Result<TempFolder> folder = TempFolder::create();
  ASSERT_TRUE(folder);
  const std::filesystem::path code = folder->path() / "code";
  std::filesystem::create_directories(code / "src");
  std::filesystem::create_symlink("/etc/passwd", code / "requirements.txt");
  std::filesystem::create_symlink("../../outside", code / "src/far.py");
  std::filesystem::create_symlink("src/near.py", code / "train.py");
  ASSERT_TRUE(write_file_durably(folder->path() / "outside", ""));
  ASSERT_TRUE(write_file_durably(code / "src/near.py", ""));
  EXPECT_TRUE(look_at_code(code, "train.py").has_entry_point);
  EXPECT_FALSE(look_at_code(code, "train.py").has_requirements);
  EXPECT_FALSE(look_at_code(code, "src/far.py").has_entry_point);
}

TEST(ScriptFailure, QuotesTheOutputFromTheErrorOn) {
  const ScriptJob job = must_read(article_job());
  Result<ScriptPlan> plan = plan_script(job, CodeFolder{.has_entry_point = true});
  ASSERT_TRUE(plan);
  FailureCollector collector;
  for (const char* line : {"epoch 1", "Traceback (most recent call last):", "  File \"train.py\"",
                           "ValueError: no pictures", "while reading", "while reading"}) {
    collector.line(line);
  }
  EXPECT_EQ(failure_text(job, plan->steps[0], StepExit{.code = 3}, collector),
            "ExecuteUserScriptError:\nExitCode 3\nErrorMessage \"ValueError: no pictures\n while "
            "reading\"\nCommand \"/usr/bin/python3 -- train.py --flag True --lr 0.1 --opt adam\"");
}

TEST(ScriptFailure, TheRankInFrontOfALineIsNoPartOfTheError) {
  FailureCollector collector;
  collector.line("[1,mpirank:0,algo-1]<stderr>:ValueError: bad");
  collector.line("[1,1]<stderr>:ValueError: bad");
  EXPECT_EQ(collector.message(), "ValueError: bad");
}

TEST(ScriptFailure, ASignalIsANegativeExitCodeAndMemoryIsNamed) {
  const ScriptJob job = must_read(article_job());
  ScriptStep step;
  step.argv = {"x"};
  EXPECT_THAT(failure_text(job, step, StepExit{.signal = 11}, FailureCollector()),
              HasSubstr("ExitCode -11\nErrorMessage \"\"\nCommand \"x\""));
  EXPECT_THAT(
      failure_text(job, step, StepExit{.signal = 9, .out_of_memory = true}, FailureCollector()),
      HasSubstr("ExtraInfo \"OutOfMemory: Process killed by SIGKILL (signal 9)\""));
}

TEST(ScriptFailure, KeepsABoundedPartOfAnEndlessComplaint) {
  FailureCollector collector;
  for (int i = 0; i < 100000; ++i) collector.line("ValueError: number " + std::to_string(i));
  EXPECT_LE(collector.message().size(), std::size_t{66} * 1024);
}

}  // namespace
}  // namespace atelier::agent
