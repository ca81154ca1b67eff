// Whole jobs to their ends: what they find, what they leave, and why they fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "agent/agent_test.h"
#include "agent/own_network_test.h"
#include "base/json.h"

namespace atelier::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(AgentTest, ADriverOfTheSdkRunsFromItsChannel) {
  driver(
      "#!/bin/bash\necho on $(hostname) for $TRAINING_JOB_NAME; "
      "echo 'export A=1' > /opt/ml/input/sm_training.env && . /opt/ml/input/sm_training.env; "
      "getent hosts algo-1 | tr -s ' '; command -v python3 pip3; exit 3\n");
  spec_.infra_check = true;
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "failed");
  EXPECT_THAT(end.message, HasSubstr("exit code 3"));
  EXPECT_THAT(log(), HasSubstr("on algo-1 for job-1\n127.77."));
  EXPECT_THAT(log(), HasSubstr("/usr/bin/python3\n/usr/bin/pip3"));
  EXPECT_THAT(log(), HasSubstr("[atelier] infrastructure check: sandbox starts in"));
}

TEST_F(AgentTest, ANativeProgramRunsFromItsDataToItsModel) {
  channel("train", {{"train/a/1.txt", "one"}, {"train/b/2.txt", "two"}});
  spec_.hyperparameters = {{"epochs", "3"}};
  spec_.metrics = {{"loss", "loss=([0-9.]+)"}, {"accuracy", "never (.*)"}};
  native(
      "cat /opt/ml/input/config/hyperparameters.json; echo; cd /opt/ml; "
      "echo epoch=1 loss=0.5; echo epoch=2 loss=0.25; cat input/data/train/*/*.txt > "
      "model/weights; "
      "mkdir model/sub; echo x > model/sub/y; echo table > output/data/table; "
      "echo $TRAINING_JOB_NAME $AWS_DEFAULT_REGION $AWS_ENDPOINT_URL $OMP_WAIT_POLICY");
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "completed") << end.message << log();
  EXPECT_THAT(kinds(), ElementsAre("started", "downloading", "training", "warning", "uploading",
                                   "completed"));
  EXPECT_THAT(events()[3].message, HasSubstr("metric 'accuracy': no line"));
  EXPECT_THAT(events()[2].detail_json, HasSubstr("2 GiB of memory"));
  EXPECT_THAT(log(), HasSubstr("{\"epochs\":\"3\"}\nepoch=1 loss=0.5\nepoch=2 loss=0.25\n"));
  EXPECT_THAT(log(), HasSubstr("job-1 us-west-2 " + spec_.s3.url + " passive\n"));
  EXPECT_THAT(log(), HasSubstr("[atelier] channel 'train': 2 files"));
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./sub/y:x\n./weights:onetwo\n");
  EXPECT_EQ(untar("prefix/job-1/output/output.tar.gz"), "./table:table\n");
  const json::value detail = parse_json(end.detail_json).value();
  EXPECT_EQ(find_number(*find_member(detail, "final_metrics"), "loss"), 0.25);
  const std::string metrics = read_file(job_ / "metrics.jsonl").value();
  EXPECT_THAT(metrics, HasSubstr(R"("n":"loss","v":0.5})"));
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 2);
  EXPECT_FALSE(fs::exists(job_ / "ml"));
  EXPECT_FALSE(fs::exists(job_ / "tmp"));
}

TEST_F(AgentTest, APythonScriptRunsAsTheToolkitRunsIt) {
  script({{"train.py",
           "import argparse, os, helper\n"
           "parser = argparse.ArgumentParser()\n"
           "parser.add_argument('--epochs', type=int)\n"
           "args = parser.parse_args()\n"
           "print('epochs', args.epochs, helper.word, os.getcwd(), os.environ['SM_MODEL_DIR'])\n"
           "open(os.environ['SM_MODEL_DIR'] + '/m', 'w').write('model')\n"},
          {"helper.py", "word = 'helped'\n"}},
         "train.py");
  spec_.hyperparameters["epochs"] = "7";
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "completed") << end.message << log();
  EXPECT_THAT(log(), HasSubstr("epochs 7 helped /opt/ml/code /opt/ml/model\n"));
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./m:model\n");
}

TEST_F(AgentTest, AScriptIsToldHowManyGpusItHas) {
  const fs::path devices = folder_.path() / "dev";
  make_folders(devices).value();
  for (const char* name : {"nvidia0", "nvidia1", "nvidiactl"}) std::ofstream{devices / name};
  script({{"train.py", "import os; print('gpus', os.environ['SM_NUM_GPUS'])\n"}}, "train.py");
  spec_.gpus = 2;
  spec_.device_folder = devices.string();
  spec_.gpu_folder = (folder_.path() / ".gpus").string();
  EXPECT_EQ(run().kind, "completed") << log();
  EXPECT_THAT(log(), HasSubstr("gpus 2\n"));
}

TEST_F(AgentTest, AScriptsExceptionIsTheReason) {
  script({{"train.py", "print('begin')\nraise ValueError('no pictures in /opt/ml')\n"}},
         "train.py");
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "failed");
  EXPECT_THAT(end.message, StartsWith("AlgorithmError: ExecuteUserScriptError:\nExitCode 1\n"));
  EXPECT_THAT(end.message, HasSubstr("ValueError: no pictures in /opt/ml"));
  EXPECT_THAT(end.message, testing::EndsWith(", exit code: 1"));
}

TEST_F(AgentTest, AnExitCodeWithoutAFailureFileIsSaidWithTheLastLines) {
  native(
      "echo working; echo cannot open the door >&2; echo partial > /opt/ml/output/data/x; exit 3");
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "failed");
  EXPECT_EQ(end.message,
            "AlgorithmError: the program ended with exit code 3. Last lines of its log:\n"
            "working\ncannot open the door");
  EXPECT_THAT(keys("out"), ElementsAre("prefix/job-1/output/output.tar.gz"));
  EXPECT_EQ(find_int(parse_json(end.detail_json).value(), "exit_code"), 3);
}

TEST_F(AgentTest, AFailureFileAndASignalAreSaid) {
  native("printf 'it \\xff broke' > /opt/ml/output/failure; exit 5");
  EXPECT_EQ(run().message, "AlgorithmError: it \xEF\xBF\xBD broke, exit code: 5");
}

TEST_F(AgentTest, TheExitCodeIsSaidBehindAFailureFileOfAnySize) {
  native("head -c 10000000 /dev/zero | tr '\\0' x > /opt/ml/output/failure; exit 3");
  const JournalEvent end = run();
  EXPECT_EQ(end.message.size(), 1024U);
  EXPECT_TRUE(end.message.ends_with("xxx, exit code: 3")) << end.message;
}

TEST_F(AgentTest, WhatALaunchersProgramSaidIsTheReasonAndNotThatItFailed) {
  const std::string driver =
      "printf 'Traceback (most recent call last):\\n  File \"driver.py\"\\nsubprocess."
      "CalledProcessError: Command train.py returned non-zero exit status 1.\\n' > "
      "/opt/ml/output/failure; exit 1";
  native("echo begin; echo 'ValueError: no pictures' >&2; " + driver);
  EXPECT_EQ(run().message, "AlgorithmError: ValueError: no pictures, exit code: 1");
}

TEST_F(AgentTest, ALauncherWhoseProgramSaidNothingIsQuoted) {
  native(
      "echo CalledProcessError: Command x returned non-zero exit status 3. > "
      "/opt/ml/output/failure; exit 3");
  EXPECT_THAT(run().message, HasSubstr("CalledProcessError: Command x returned"));
}

TEST_F(AgentTest, ASignalIsNamed) {
  native("kill -SEGV $$");
  EXPECT_EQ(run().message,
            "AlgorithmError: the program was killed by SIGSEGV (signal 11); it printed nothing");
}

TEST_F(AgentTest, OutOfMemoryIsNamedWithItsLimit) {
  spec_.memory_gib = 0.0625;
  native("exec python3 -c 'x = bytearray(400 << 20)'");
  const JournalEvent end = run();
  if (events()[2].detail_json.find("cgroup") == std::string::npos) GTEST_SKIP() << "no cgroup";
  EXPECT_THAT(end.message,
              StartsWith("AlgorithmError: out of memory: the kernel killed a process of "
                         "the job at its limit of 0.0625 GiB (ml.m5.large). "));
}

TEST_F(AgentTest, OfTheHostsLoopbackAJobReachesItsServerAlone) {
  if (const std::string why = no_own_network(); !why.empty()) GTEST_SKIP() << why;
  const std::string port = spec_.s3.url.substr(spec_.s3.url.rfind(':') + 1);
  const objects::testing::EmbeddedS3 other{folder_.path() / "other"};
  const std::string other_url = other.endpoint().url;
  const std::string other_port = other_url.substr(other_url.rfind(':') + 1);
  const std::string script = "for port in " + port + " " + other_port +
                             "; do (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && "
                             "echo reached $port; done; true";
  native(script);
  EXPECT_EQ(run().kind, "completed");
  EXPECT_EQ(log(), "reached " + port + "\n");
  EXPECT_THAT(kinds(), Not(testing::Contains("warning")));
  // The control: on the host's network it reaches the other as well.
  job_ = folder_.path() / "job-2";
  make_folders(job_ / "logs").value();
  spec_.job_name = "job-2";
  spec_.host_network = true;
  EXPECT_EQ(run().kind, "completed");
  EXPECT_EQ(log(), "reached " + port + "\nreached " + other_port + "\n");
}

TEST_F(AgentTest, WhereNoNetworkOfItsOwnIsPossibleTheJobRunsOnTheHostsAndSaysWhy) {
  native("echo ran");
  spec_.host_network = false;
  // The host's, but not at an address that could be passed on.
  spec_.s3.url.replace(spec_.s3.url.find("127.0.0.1"), 9, "s3.localhost");
  EXPECT_EQ(run().kind, "completed");
  EXPECT_EQ(log(), "ran\n");
  std::string warnings;
  for (const JournalEvent& event : events()) {
    if (event.kind == "warning") warnings += event.message;
  }
  EXPECT_THAT(warnings, StartsWith("the job shares this machine's network"));
  EXPECT_THAT(warnings, HasSubstr("start it with such a --listen"));
}

TEST_F(AgentTest, ANetworkThatEndsUnderAProgramIsNotTheProgramsFailure) {
  if (const std::string why = no_own_network(); !why.empty()) GTEST_SKIP() << why;
  const std::string port = spec_.s3.url.substr(spec_.s3.url.rfind(':') + 1);
  native("echo runs; while (exec 3<>/dev/tcp/127.0.0.1/" + port +
         ") 2>/dev/null; do sleep 0.05; done; echo alone; "
         "until [ -e /opt/ml/input/go ]; do sleep 0.05; done; exit 5");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("runs");
  int killed = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const Result<std::string> line = read_file(entry.path() / "cmdline", 8192);
    if (!line || !line->starts_with("pasta") || line->find(port) == std::string::npos) continue;
    kill(std::atoi(entry.path().filename().c_str()), SIGKILL);
    ++killed;
  }
  wait_for_line("[atelier] pasta, the way from");
  wait_for_line("alone");
  std::ofstream{job_ / "ml/input/go"} << "";
  agent.join();
  EXPECT_EQ(killed, 1);
  EXPECT_EQ(last().kind, "failed");
  EXPECT_THAT(last().message, StartsWith("InternalServerError: pasta, the way from"));
  EXPECT_THAT(last().message, HasSubstr("exit code 5"));
}

TEST_F(AgentTest, NetworkIsolationShutsTheHostAndTheKeysOut) {
  spec_.network_isolation = true;
  const std::string port = spec_.s3.url.substr(spec_.s3.url.rfind(':') + 1);
  native("(exec 3<>/dev/tcp/127.0.0.1/" + port + ") 2>/dev/null && echo reached; env | grep ^AWS_");
  const JournalEvent end = run();
  EXPECT_THAT(log(), Not(HasSubstr("reached")));
  EXPECT_THAT(log(), Not(HasSubstr("AWS_SECRET_ACCESS_KEY")));
  EXPECT_EQ(end.kind, "completed");
}

TEST_F(AgentTest, AProgramCannotReachTheServersData) {
  native("ls " + folder_.path().string() + " " + job_.string() +
         " 2>&1; cat /etc/shadow 2>&1; "
         "ls /proc | grep -c '^[0-9]'; id -u");
  run();
  EXPECT_THAT(log(), Not(HasSubstr("spec.json")));
  EXPECT_THAT(log(), Not(HasSubstr("root:")));
  EXPECT_THAT(log(), HasSubstr("/etc/shadow: No such file"));
}

TEST_F(AgentTest, LinksInOptMlLeadTheAgentNowhere) {
  std::ofstream{folder_.path() / "secret"} << "the server's key";
  native("cd /opt/ml; ln -s " + (folder_.path() / "secret").string() +
         " output/failure; "
         "rmdir output/data; ln -s " +
         folder_.path().string() +
         " output/data; "
         "ln -s /etc/shadow model/link; exit 1");
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "failed");
  EXPECT_THAT(end.message, Not(HasSubstr("key")));
  EXPECT_TRUE(keys("out").empty());
  EXPECT_EQ(read_file(folder_.path() / "secret").value(), "the server's key");
}

TEST_F(AgentTest, ALinkInTheModelIsPackedAsALink) {
  native(
      "cd /opt/ml/model; echo w > weights; ln -s weights latest; ln -s /etc/shadow shadow; "
      "mkfifo pipe");
  EXPECT_EQ(run().kind, "completed");
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./weights:w\n");
  EXPECT_EQ(fs::read_symlink(folder_.path() / "result/shadow"), "/etc/shadow");
}

TEST_F(AgentTest, WithoutCompressionTheFilesAreUploaded) {
  spec_.compress_output = false;
  native("cd /opt/ml/model; mkdir a; echo 1 > a/b; echo 2 > c; ln -s c d");
  EXPECT_EQ(run().kind, "completed") << last().message;
  EXPECT_THAT(keys("out"),
              ElementsAre("prefix/job-1/output/model/a/b", "prefix/job-1/output/model/c"));
}

TEST_F(AgentTest, AManifestNamesTheFilesAndASecondJobFindsThemOnTheHost) {
  for (const char* key : {"set/a/1", "set/a/2", "set/b/3"})
    store_->put("data", key, key, {}).value();
  store_->put("data", "list.json", R"([{"prefix":"s3://data/set/"},"a/2","b/3"])", {}).value();
  ChannelSpec& channel = spec_.channels.emplace_back();
  channel.name = "train";
  channel.s3_uri = "s3://data/list.json";
  channel.s3_data_type = "ManifestFile";
  spec_.cache_folder = (folder_.path() / "cache").string();
  spec_.cache_bytes = 1 << 20;
  native(
      "cd /opt/ml/input/data; find . -type f | sort; cat train-manifest; "
      "(echo spoilt > train/a/2) 2>/dev/null; rm -f train/b/3; true");
  EXPECT_EQ(run().kind, "completed") << last().message;
  EXPECT_THAT(log(), HasSubstr("./train-manifest\n./train/a/2\n./train/b/3\n"));
  EXPECT_THAT(log(), HasSubstr(R"([{"prefix":"s3://data/set/"},"a/2","b/3"])"));
  fs::remove_all(job_);
  make_folders(job_ / "logs").value();
  native("cat /opt/ml/input/data/train/a/2 /opt/ml/input/data/train/b/3");
  EXPECT_EQ(run().kind, "completed") << last().message;
  EXPECT_THAT(log(), HasSubstr("2 were on this host already"));
  EXPECT_THAT(log(), HasSubstr("set/a/2set/b/3"))
      << "what the first job did to its files is its own";
}

TEST_F(AgentTest, JobsOfAWarmPoolShareACacheAndPackagesAndNothingElse) {
  const auto next = [&](const std::string& name, const std::string& program) {
    fs::remove_all(job_);
    make_folders(job_ / "logs").value();
    spec_.job_name = name;
    native(program);
    EXPECT_EQ(run().kind, "completed") << last().message;
    return log();
  };
  const std::string use =
      "id -u; echo \"$PYTHONUSERBASE\"; ls /opt/ml /tmp; cd /opt/ml/sagemaker/warmpoolcache; "
      "cat note \"$PYTHONUSERBASE/tool\" 2>/dev/null; ";
  spec_.warm_pool = (folder_.path() / "warm" / "first.f00d").string();
  const std::string first =
      next("first", use +
                        "(umask 077; echo noted > note; echo a tool > \"$PYTHONUSERBASE/tool\"); "
                        "ln -s /etc/passwd link; touch /opt/ml/left /tmp/left; "
                        "rm -r /opt/ml/sagemaker; ln -s /etc /opt/ml/sagemaker; true");
  EXPECT_THAT(first, Not(HasSubstr("noted")));
  EXPECT_THAT(first, HasSubstr("\n/opt/warm/.python\n"));
  EXPECT_EQ(next("second", use), first + "noted\na tool\n")
      << "the same user, and files of mode 600";
  spec_.warm_pool = (folder_.path() / "warm" / "other.f00d").string();
  EXPECT_THAT(next("second", use + "true"), Not(HasSubstr("noted")));
  spec_.warm_pool.clear();
  EXPECT_THAT(next("second", "ls -d /opt/warm /opt/ml/sagemaker 2>&1; true"),
              Not(HasSubstr("/opt/warm\n")));
}

TEST_F(AgentTest, DataThatIsNotThereIsAClientErrorWithItsName) {
  spec_.channels.push_back({.name = "train", .s3_uri = "s3://data/nothing/here"});
  native("echo ran");
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "failed");
  EXPECT_THAT(end.message, StartsWith("ClientError: data of channel 'train'"));
  EXPECT_THAT(end.message, HasSubstr("s3://data/nothing/here"));
  EXPECT_THAT(log(), Not(HasSubstr("ran")));
}

}  // namespace
}  // namespace atelier::agent
