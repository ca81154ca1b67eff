// Whole jobs: a real S3 in this process, real bubblewrap, real programs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "agent/agent_test.h"
#include "agent/archive.h"
#include "agent/attempt_clock.h"
#include "agent/journal.h"
#include "agent/log_file.h"
#include "agent/ml_tree.h"
#include "agent/volume_watch.h"
#include "base/json.h"
#include "objects/testing.h"

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

TEST_F(AgentTest, AStopEndsAProgramThatIgnoresSigtermAndUploadsWhatThereIs) {
  native(
      "trap 'echo ignored' TERM; echo half > /opt/ml/model/half; echo ready; "
      "while :; do sleep 0.1; done");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_stop(job_).value();
  request_stop(job_).value();
  agent.join();
  EXPECT_EQ(last().kind, "stopped");
  EXPECT_THAT(log(), HasSubstr("ignored"));
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./half:half\n");
}

TEST_F(AgentTest, AStopBeforeTheStartRunsNothing) {
  native("echo ran");
  request_stop(job_).value();
  EXPECT_EQ(run().kind, "stopped");
  EXPECT_THAT(kinds(), ElementsAre("started", "stopped"));
  EXPECT_THAT(log(), Not(HasSubstr("ran")));
}

TEST_F(AgentTest, AnInterruptedProgramIsKilledAtTheEndOfItsNoticeAndTheNextAttemptStartsAfresh) {
  spec_.interruption_notice = std::chrono::seconds{1};
  native(
      "trap 'echo ignored' TERM; echo half > /opt/ml/model/half; echo ready; "
      "while :; do sleep 0.1; done");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_interrupt(job_, 1).value();
  agent.join();
  EXPECT_EQ(last().kind, "interrupted");
  EXPECT_THAT(last().message, HasSubstr("killed at the end of its 1 s of notice"));
  EXPECT_THAT(last().detail_json, HasSubstr("\"ran_ms\":"));
  EXPECT_FALSE(fs::exists(job_ / "ml"));
  EXPECT_FALSE(store_->head("out", "prefix/job-1/output/model.tar.gz"));
  run_agent(job_).value();
  EXPECT_EQ(kinds().size(), 5U) << "the attempt is over, whoever starts another agent";

  spec_.attempt = 2;
  spec_.journal_floor = 5;
  native("ls /opt/ml/model; echo whole > /opt/ml/model/whole");
  EXPECT_EQ(run().kind, "completed");
  EXPECT_EQ(last().attempt, 2);
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./whole:whole\n");
  EXPECT_THAT(log(), HasSubstr("ready")) << "the log is that of all attempts";
  EXPECT_THAT(kinds(), ElementsAre("started", "downloading", "training", "saving", "interrupted",
                                   "started", "downloading", "training", "uploading", "completed"));
}

TEST_F(AgentTest, AProgramThatFinishesWithinTheNoticeIsComplete) {
  native("trap '' TERM; echo ready; sleep 1; echo w > /opt/ml/model/w");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_interrupt(job_, 1).value();
  agent.join();
  EXPECT_EQ(last().kind, "completed");
}

TEST_F(AgentTest, AProgramThatSavesItsStateOnSigtermAndEndsWellIsInterruptedNotComplete) {
  native("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_interrupt(job_, 1).value();
  agent.join();
  EXPECT_EQ(last().kind, "interrupted");
  EXPECT_THAT(last().message, HasSubstr("the program ended with exit code 0"));
}

TEST_F(AgentTest, AnInterruptionBeforeTheStartRunsNothingAndIsNotForTheNextAttempt) {
  native("echo ran");
  request_interrupt(job_, 1).value();
  EXPECT_EQ(run().kind, "interrupted");
  EXPECT_THAT(log(), Not(HasSubstr("ran")));
  spec_.attempt = 2;
  EXPECT_EQ(run().kind, "completed");
}

TEST_F(AgentTest, TheLimitOfTimeEndsAProgramThatEndsWellOnSigterm) {
  spec_.max_runtime = std::chrono::seconds{3};
  native("trap 'echo saved > /opt/ml/model/state; exit 0' TERM; while :; do sleep 0.05; done");
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "max-runtime");
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./state:saved\n");
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

TEST_F(AgentTest, AModelThatCannotBeUploadedIsAClientErrorAndKept) {
  spec_.output_s3_uri = "s3://no-such-bucket/x";
  native("echo w > /opt/ml/model/weights");
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "failed");
  EXPECT_THAT(end.message,
              StartsWith("ClientError: upload of /opt/ml/model to s3://no-such-bucket/"));
  EXPECT_TRUE(fs::exists(job_ / "ml/model/weights"));
}

TEST_F(AgentTest, AFileThatIsMostlyHolesIsRefusedByItsNameSizeAndLimit) {
  for (const int volume : {0, 1}) {
    fs::remove_all(job_);
    make_folders(job_ / "logs").value();
    spec_.volume_gib = volume;
    if (largest_copy(spec_, job_).value().bytes > std::uint64_t{4} << 40) continue;  // a large disk
    spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
    native("cd /opt/ml; truncate -s 4T model/x checkpoints/y; echo small > checkpoints/z");
    const JournalEvent end = run();
    EXPECT_EQ(end.kind, "failed");
    EXPECT_THAT(end.message,
                StartsWith("ClientError: '/opt/ml/model/x' has 4398046511104 bytes: "));
    EXPECT_THAT(end.message,
                HasSubstr(volume > 0 ? "VolumeSizeInGB is 1, a limit of 1073741824 bytes"
                                     : "the disk has a size of "));
    EXPECT_THAT(keys("data"), ElementsAre("ckpt/z"));
  }
}

TEST_F(AgentTest, AnAgentThatOutlivesItsLauncherReportsTheEnd) {
  native("echo hello");
  launch();
  const UniqueFd watch{inotify_init1(IN_CLOEXEC)};
  inotify_add_watch(watch.get(), job_.c_str(), IN_MODIFY | IN_CREATE | IN_DELETE);
  while (!is_last_event(last().kind)) {
    pollfd waiting{watch.get(), POLLIN, 0};
    ASSERT_GT(poll(&waiting, 1, 30000), 0);
    char events[4096];
    ASSERT_GT(read(watch.get(), events, sizeof events), 0);
  }
  EXPECT_EQ(last().kind, "completed");
}

TEST_F(AgentTest, AKilledAgentTakesItsProgramWithItAndTheNextOneSaysSo) {
  native("echo partial > /opt/ml/output/data/x; echo ready; sleep 1000");
  const pid_t agent = launch();
  ASSERT_GT(agent, 0);
  EXPECT_TRUE(agent_alive(job_));
  wait_for_line("ready");
  // The program holds its working folder; when it is dead the kernel lets this descriptor's lock
  // go.
  const UniqueFd pidfd{static_cast<int>(syscall(434 /* pidfd_open */, agent, 0))};
  kill(agent, SIGKILL);
  pollfd waiting{pidfd.get(), POLLIN, 0};
  ASSERT_GT(poll(&waiting, 1, 10000), 0);
  EXPECT_FALSE(agent_alive(job_));
  run_agent(job_).value();
  EXPECT_EQ(last().kind, "failed");
  EXPECT_THAT(last().message, HasSubstr("the agent was killed while the program ran"));
  EXPECT_EQ(log(), "ready\n");  // it did not run again
  EXPECT_EQ(untar("prefix/job-1/output/output.tar.gz"), "./x:partial\n");
}

TEST_F(AgentTest, AnAttemptThatWasLostTookTheTimeThatItsAgentLived) {
  native("echo ready; sleep 1000");
  const pid_t agent = launch();
  ASSERT_GT(agent, 0);
  wait_for_line("ready");
  const UniqueFd pidfd{static_cast<int>(syscall(434 /* pidfd_open */, agent, 0))};
  kill(agent, SIGKILL);
  pollfd waiting{pidfd.get(), POLLIN, 0};
  ASSERT_GT(poll(&waiting, 1, 10000), 0);
  // As it would be after some hours: what it left is the time that counts.
  ASSERT_TRUE(AttemptClock::read(job_, 1));
  EXPECT_FALSE(AttemptClock::read(job_, 2));
  ASSERT_TRUE(AttemptClock::start(job_, 1, std::chrono::milliseconds{1234}));
  const auto left = AttemptClock::read(job_, 1).value();
  ASSERT_GE(left.count(), 1234);
  run_agent(job_).value();
  EXPECT_EQ(last().kind, "failed");
  EXPECT_EQ(find_int(parse_json(last().detail_json).value(), "ran_ms"), left.count());
  EXPECT_FALSE(AttemptClock::read(job_, 1)) << "and goes with the rest";
}

TEST_F(AgentTest, AnAgentThatWasKilledWhileUploadingUploadsAgainAndCompletes) {
  native("echo ran again");
  write_spec();
  make_folders(job_ / "ml/model").value();
  std::ofstream{job_ / "ml/model/w"} << "kept\n";
  {
    Journal journal = Journal::open(job_, system_clock()).value();
    for (const char* kind : {"started", "downloading", "training"}) {
      journal.append(kind, "").value();
    }
    journal
        .append("uploading", "", R"({"outcome":"completed","ran":true,"final_metrics":{"a":1.5}})")
        .value();
  }
  run_agent(job_).value();
  EXPECT_EQ(last().kind, "completed");
  EXPECT_THAT(last().detail_json, HasSubstr("\"a\":1.5"));
  EXPECT_THAT(log(), Not(HasSubstr("ran again")));
  EXPECT_EQ(untar("prefix/job-1/output/model.tar.gz"), "./w:kept\n");
  const std::size_t count = events().size();
  run_agent(job_).value();
  EXPECT_EQ(events().size(), count);
}

TEST_F(AgentTest, WhatAnAgentThatWasKilledWhileCleaningUpHasLeftGoesWithTheNext) {
  for (const char* detail : {R"({"delivered":true})", R"({"delivered":false})"}) {
    fs::remove(job_ / "journal.jsonl");
    for (const char* part : {"ml/model", "ml/input", "tmp"}) make_folders(job_ / part).value();
    write_spec();
    Journal::open(job_, system_clock()).value().append("completed", "", detail).value();
    EXPECT_TRUE(needs_cleaning(job_));
    run_agent(job_).value();
    EXPECT_FALSE(needs_cleaning(job_));
    EXPECT_FALSE(fs::exists(job_ / "tmp"));
    EXPECT_FALSE(fs::exists(job_ / "ml/input"));
    // What could not be uploaded is kept.
    EXPECT_EQ(fs::exists(job_ / "ml/model"), detail == std::string_view{R"({"delivered":false})"});
    EXPECT_EQ(events().size(), 1U);
  }
}

TEST_F(AgentTest, CheckpointsAreRestoredCopiedWhileItRunsAndComeHomeAtAStop) {
  store_->put("data", "ckpt/a/checkpoint-1", "one", {}).value();
  store_->put("data", "ckpt/ab/checkpoint-1", "of another job", {}).value();
  spec_.checkpoints = {"s3://data/ckpt/a", "/opt/ml/checkpoints"};
  spec_.tensorboard = {"s3://out/tb", "/tmp/events"};
  native(
      "cat /opt/ml/input/config/checkpointconfig.json; echo; cat /opt/ml/checkpoints/*; echo; "
      "exec 3>/tmp/events/open; echo event >&3; cd /opt/ml/checkpoints; "
      "echo two > two.tmp; mv two.tmp checkpoint-2; rm checkpoint-1; "
      "trap 'echo last > last; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  wait_for_object("data", "ckpt/a/checkpoint-2");
  wait_for_object("out", "tb/job-1/tensorboard-output/open");
  request_stop(job_).value();
  agent.join();
  EXPECT_EQ(last().kind, "stopped") << last().message;
  EXPECT_THAT(log(), HasSubstr(R"({"S3Uri":"s3://data/ckpt/a","LocalPath":"/opt/ml/checkpoints"})"
                               "\none\n"));
  EXPECT_THAT(keys("data"),
              ElementsAre("ckpt/a/checkpoint-2", "ckpt/a/last", "ckpt/ab/checkpoint-1"));
  EXPECT_FALSE(fs::exists(job_ / "checkpoints.records"));
  EXPECT_FALSE(fs::exists(job_ / "tensorboard.files"));
}

TEST_F(AgentTest, AKilledProgramsHalfWrittenCheckpointDoesNotReplaceTheWholeOne) {
  spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
  native(
      "cd /opt/ml/checkpoints; echo whole > last.pt; echo ready; "
      "until [ -e /opt/ml/output/go ]; do sleep 0.02; done; "
      "exec 3>last.pt; printf half >&3; kill -KILL $$");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  wait_for_object("data", "ckpt/last.pt");
  std::ofstream{job_ / "ml/output/go"} << "";
  agent.join();
  EXPECT_EQ(last().kind, "failed");
  EXPECT_EQ(store_->get_bytes("data", "ckpt/last.pt", 100).value(), "whole\n");
  std::string warnings;
  for (const JournalEvent& event : events())
    warnings += event.kind == "warning" ? event.message : "";
  EXPECT_THAT(warnings, HasSubstr("'last.pt'"));
}

TEST_F(AgentTest, AnInterruptedJobsLastCheckpointIsThereForItsNextAttempt) {
  spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
  native(
      "cd /opt/ml/checkpoints; if [ -e step ]; then echo goes on at $(cat step); exit; fi; "
      "trap 'echo 17 > step; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_interrupt(job_, 1).value();
  agent.join();
  EXPECT_EQ(last().kind, "interrupted") << last().message;
  EXPECT_EQ(store_->get_bytes("data", "ckpt/step", 100).value(), "17\n");
  spec_.attempt = 2;
  spec_.journal_floor = events().size();
  EXPECT_EQ(run().kind, "completed") << last().message << log();
  EXPECT_THAT(log(), HasSubstr("goes on at 17"));
}

TEST_F(AgentTest, AnAgentThatIsKilledWhileItSavesAnInterruptedProgramIsFollowedByOneThatGoesOn) {
  spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
  native("echo ran again");
  write_spec();
  make_folders(job_ / "ml/checkpoints").value();
  std::ofstream{job_ / "ml/checkpoints/step"} << "17";
  {
    Journal journal = Journal::open(job_, system_clock()).value();
    for (const char* kind : {"started", "downloading", "training"}) {
      journal.append(kind, "").value();
    }
    journal
        .append("saving", "", R"({"outcome":"interrupted","reason":"r","ran":true,"killed":false})")
        .value();
  }
  run_agent(job_).value();
  EXPECT_EQ(last().kind, "interrupted") << last().message;
  EXPECT_EQ(last().message, "r");
  EXPECT_THAT(log(), Not(HasSubstr("ran again")));
  EXPECT_EQ(store_->get_bytes("data", "ckpt/step", 100).value(), "17");
}

// A trainer whose child writes the checkpoint: `child` is its program, after which it lives on.
const char* const kParent = R"(
import os, signal, sys, time
os.chdir('/opt/ml/checkpoints')
open('model', 'w').write('whole')
print('ready', flush=True)
while not os.path.exists('/opt/ml/output/go'): time.sleep(0.02)
child = os.fork()
if child == 0:
    file = open('model', 'wb')
    file.write(b'half')
    file.flush()
    time.sleep(2.5)
    END
os.waitpid(child, 0)
time.sleep(4)
CODE
)";

TEST_F(AgentTest, HalfAFileOfAKilledChildDoesNotReplaceAWholeOneWhileItsParentLivesOn) {
  for (const auto& [ending, code, expected] :
       {std::tuple{"os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(1)", "whole"},
        std::tuple{"file.write(b' and half'); file.close(); time.sleep(2); sys.exit()",
                   "os.kill(os.getpid(), signal.SIGKILL)", "half and half"}}) {
    fs::remove_all(job_);
    make_folders(job_ / "logs").value();
    spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
    std::string text = kParent;
    text.replace(text.find("END"), 3, ending);
    text.replace(text.find("CODE"), 4, code);
    native("exec python3 -c \"$PROGRAM\"");
    spec_.environment["PROGRAM"] = text;
    write_spec();
    std::thread agent{[&] { run_agent(job_).value(); }};
    wait_for_line("ready");
    wait_for_object("data", "ckpt/model");
    std::ofstream{job_ / "ml/output/go"} << "";
    agent.join();
    EXPECT_EQ(last().kind, "failed");
    EXPECT_EQ(store_->get_bytes("data", "ckpt/model", 100).value(), expected) << log();
    store_->remove("data", "ckpt/model").value();
  }
}

TEST_F(AgentTest, AJobThatEndsBeforeItsProgramStartsLeavesItsCheckpointsInS3) {
  for (const char* key : {"ckpt/a/1", "ckpt/a/2", "ckpt/a/3"})
    store_->put("data", key, key, {}).value();
  // The folder of the code takes a while to go, in which whoever still looks finds nothing.
  const fs::path code = folder_.path() / "code/many";
  make_folders(code).value();
  for (int i = 0; i < 1'000; ++i) std::ofstream{code / std::to_string(i)};
  script({{"train.py", "print('ran')\n"}}, "no-such-entry-point.py");
  spec_.checkpoints = {"s3://data/ckpt/a", "/tmp/ck"};
  EXPECT_THAT(run().message, StartsWith("ClientError"));
  EXPECT_THAT(log(), HasSubstr("3 files, 24 bytes restored"));
  EXPECT_THAT(log(), Not(HasSubstr("ran")));
  EXPECT_THAT(keys("data"),
              ElementsAre("ckpt/a/1", "ckpt/a/2", "ckpt/a/3", "source/sourcedir.tar.gz"));
}

TEST_F(AgentTest, CheckpointsThatCannotBeReadAreAClientErrorWithTheirPlace) {
  spec_.checkpoints = {"s3://no-such-bucket/x", "/opt/ml/checkpoints"};
  native("echo ran");
  EXPECT_THAT(
      run().message,
      StartsWith("ClientError: checkpoints of s3://no-such-bucket/x/ to /opt/ml/checkpoints"));
  EXPECT_THAT(log(), Not(HasSubstr("ran")));
}

TEST_F(AgentTest, ASecondAgentOnTheFolderIsRefused) {
  native("true");
  write_spec();
  const UniqueFd lock = lock_file(job_ / "agent.lock").value();
  EXPECT_TRUE(agent_alive(job_));
  EXPECT_EQ(run_agent(job_).error().code, Code::kFailedPrecondition);
}

TEST_F(AgentTest, ASpecThatCannotBeReadFailsTheJob) {
  write_file_durably(job_ / "spec.json", "{}", 0600).value();
  run_agent(job_).value();
  EXPECT_EQ(last().message, "InternalServerError: spec.job_name has to be given");
}

TEST_F(AgentTest, AProgramThatCannotStartAnAgentSaysWhy) {
  write_spec();
  EXPECT_THAT(launch_agent("/no/such/atelier", job_).error().message,
              HasSubstr("/no/such/atelier"));
  EXPECT_THAT(launch_agent("/bin/false", job_).error().message, HasSubstr("did not start"));
}

}  // namespace
}  // namespace atelier::agent
