// Jobs with several instances: real agents, real sandboxes, a real S3 in this process.
#include "agent/members.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "agent/journal.h"
#include "agent/log_file.h"
#include "agent/own_network_test.h"
#include "base/json.h"
#include "objects/testing.h"

namespace atelier::agent {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class MembersTest : public testing::Test {
 protected:
  MembersTest() {
    make_folders(job_ / "logs").value();
    store_->create_bucket("out").value();
    spec_.job_name = "job";
    spec_.region = "us-west-2";
    spec_.s3 = s3_.endpoint();
    spec_.output_s3_uri = "s3://out";
    spec_.log_stream = "job/algo-1-1796022355";
    spec_.vcpus = 1;
    spec_.memory_gib = 1;
    spec_.stop_grace = std::chrono::seconds{2};
    spec_.runtime.kind = compute::RuntimeKind::kBuiltIn;
    spec_.host_network = !no_own_network().empty();
  }

  void program(const std::string& script, int instances = 2) {
    spec_.runtime.program = {"/bin/bash", "-c", script};
    for (int i = 1; i <= instances; ++i) {
      InstanceSpec& instance = spec_.instances.emplace_back();
      instance.host = "algo-" + std::to_string(i);
      instance.vcpus = 1;
      instance.memory_gib = 1;
    }
  }
  // As ModelTrainer starts it.
  void program_of_sdk_v3(const std::string& script) {
    program("");
    spec_.container_entrypoint = {"/bin/bash", "-c"};
    spec_.container_arguments = {": /opt/ml/input/data/sm_drivers/sm_train.sh; " + script};
  }
  // As another such job that runs.
  UniqueFd hold_the_built_in_port() {
    const fs::path folder = folder_.path() / ".network";
    make_folders(folder).value();
    return lock_file(folder / "0").value();
  }
  static fs::path agent_program() {
    return fs::read_symlink("/proc/self/exe").parent_path() / "agent_under_test";
  }
  void launch() {
    write_file_durably(job_ / "spec.json", to_json(spec_), 0600).value();
    launch_agent(agent_program(), job_).value();
  }
  // The other instances alone, whose agents `program` runs.
  std::unique_ptr<Members> start(const fs::path& program) {
    std::unique_ptr<Members> members = Members::open(job_, spec_, program, system_clock()).value();
    members->start(spec_).value();
    return members;
  }
  fs::path script(const std::string& commands) {
    const fs::path file = folder_.path() / "program.sh";
    std::ofstream{file} << "#!/bin/bash\n" << commands << "\n";
    fs::permissions(file, fs::perms::owner_all);
    return file;
  }
  // Waits for what a folder's files say, woken by each change of the folder.
  template <typename Done>
  void wait(const fs::path& folder, Done done) {
    const UniqueFd watch{inotify_init1(IN_CLOEXEC)};
    inotify_add_watch(watch.get(), folder.c_str(), IN_MODIFY | IN_CREATE | IN_CLOSE);
    while (!done()) {
      pollfd waiting{watch.get(), POLLIN, 0};
      ASSERT_GT(poll(&waiting, 1, 60000), 0) << "nothing happens in " << folder << "\n"
                                             << all_logs();
      char events[4096];
      ASSERT_GT(read(watch.get(), events, sizeof events), 0);
    }
  }
  JournalEvent end() {
    JournalEvent last;
    wait(job_, [&] {
      const auto events = read_journal(job_);
      if (!events || events->empty() || !is_last_event(events->back().kind)) return false;
      last = events->back();
      return !agent_alive(job_);
    });
    return last;
  }
  std::string log(const std::string& host) {
    std::string text;
    const fs::path file = instance_folder(job_, host) / "logs" / (host + ".log");
    const LogPage page = read_log(file, 0, SIZE_MAX, SIZE_MAX).value();
    for (const LogEvent& event : page.events) {
      text += event.message + "\n";
    }
    return text;
  }
  std::string all_logs() {
    std::string text;
    for (const std::string& host : instance_hosts(job_)) text += host + ":\n" + log(host);
    return text;
  }
  void wait_for_line(const std::string& host, const std::string& line) {
    const fs::path logs = instance_folder(job_, host) / "logs";
    make_folders(logs).value();
    wait(logs, [&] { return log(host).find(line) != std::string::npos; });
  }
  std::string untar(const std::string& key) {
    const fs::path file = folder_.path() / "result.tar.gz";
    std::ofstream{file, std::ios::binary} << store_->get_bytes("out", key, 1 << 20).value();
    const std::string folder = (folder_.path() / "result").string();
    const std::string command = "mkdir " + folder + " && tar -C " + folder + " -xzf " +
                                file.string() + " && cd " + folder +
                                " && find . -type f | sort | xargs grep -H '' > ../listing";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read_file(folder_.path() / "listing").value();
  }

  TempFolder folder_ = TempFolder::create().value();
  fs::path job_ = folder_.path() / "job";
  objects::testing::EmbeddedS3 s3_{folder_.path() / "s3"};
  std::unique_ptr<objects::ObjectStore> store_ = objects::make_s3_client(s3_.endpoint());
  AgentSpec spec_;
};

// A server at algo-1, to which algo-2 sends; both leave a file of their own and one of the same
// name.
constexpr const char* kTalk = R"(
  host=$(hostname); getent hosts algo-1 algo-2 | tr -s ' '
  if [ $host = algo-1 ]; then
    python3 -c 'import socket; s = socket.create_server(("algo-1", 7790)); print(s.accept()[0].recv(99).decode())'
  else
    until echo hello from $host 2>/dev/null >/dev/tcp/algo-1/7790; do sleep 0.1; done
  fi
  echo $host > /opt/ml/model/$host; echo $host > /opt/ml/model/both; echo metric=$host | tr -d a-z-
)";

TEST_F(MembersTest, InstancesReachEachOtherAndAreDeliveredAsOne) {
  program(kTalk);
  spec_.metrics = {{"host", "=([0-9]+)"}};
  launch();
  const JournalEvent last = end();
  ASSERT_EQ(last.kind, "completed") << last.message << all_logs();
  EXPECT_THAT(log("algo-1"), HasSubstr("hello from algo-2"));
  EXPECT_THAT(log("algo-1"),
              testing::ContainsRegex("127\\.77\\.[01]\\.1 algo-1\n127\\.77\\.[01]\\.2 algo-2"));
  EXPECT_EQ(untar("job/output/model.tar.gz"), "./algo-1:algo-1\n./algo-2:algo-2\n./both:algo-1\n");
  EXPECT_THAT(read_file(instance_folder(job_, "algo-2") / "metrics.jsonl").value(),
              HasSubstr("\"v\":2"));
  bool warned = false;
  const std::vector<JournalEvent> events = read_journal(job_).value();
  for (const JournalEvent& event : events) {
    warned = warned || event.message.find("'both' among them") != std::string::npos;
  }
  EXPECT_TRUE(warned);
  // What all have left is gone with the leader's.
  EXPECT_FALSE(fs::exists(job_ / "tmp"));
  EXPECT_FALSE(fs::exists(instance_folder(job_, "algo-2") / "ml"));
  EXPECT_FALSE(fs::exists(instance_folder(job_, "algo-2") / "tmp"));
}

TEST_F(MembersTest, WithIsolationTheyReachEachOtherAndNobodyElse) {
  program(kTalk);
  spec_.network_isolation = true;
  launch();
  const JournalEvent last = end();
  ASSERT_EQ(last.kind, "completed") << last.message << all_logs();
  EXPECT_THAT(log("algo-1"), HasSubstr("hello from algo-2"));
}

TEST_F(MembersTest, InstancesOnTheHostsNetworkReachEachOtherAtAddressesOfTheirOwn) {
  program(kTalk);
  spec_.host_network = true;
  launch();
  const JournalEvent last = end();
  ASSERT_EQ(last.kind, "completed") << last.message << all_logs();
  EXPECT_THAT(log("algo-1"), HasSubstr("hello from algo-2"));
  EXPECT_THAT(log("algo-1"), HasSubstr("127.77.1.1 algo-1\n127.77.1.2 algo-2"));
}

TEST_F(MembersTest, JobsOfTheSdkV3MeetNoOtherAtThePortThatIsBuiltIn) {
  spec_.host_network = true;
  program_of_sdk_v3("getent hosts algo-1");
  std::optional<UniqueFd> other = hold_the_built_in_port();
  launch();
  wait_for_line("algo-1", "waits for the end of another job");
  EXPECT_FALSE(fs::exists(instance_folder(job_, "algo-2") / "journal.jsonl"));
  other.reset();
  const JournalEvent last = end();
  ASSERT_EQ(last.kind, "completed") << last.message << all_logs();
  EXPECT_THAT(log("algo-2"), HasSubstr("127.77.0.1"));
}

TEST_F(MembersTest, AStopEndsTheWaitForThatPort) {
  spec_.host_network = true;
  program_of_sdk_v3("echo ran");
  const UniqueFd other = hold_the_built_in_port();
  launch();
  wait_for_line("algo-1", "waits for the end of another job");
  request_stop(job_).value();
  EXPECT_EQ(end().kind, "stopped");
  EXPECT_THAT(log("algo-1"), Not(HasSubstr("ran")));
}

TEST_F(MembersTest, OneThatFailsEndsTheOthersAndIsTheCause) {
  // It fails when the others have told it that they would notice.
  program(
      R"(
        if [ $(hostname) = algo-3 ]; then
          python3 -c 'import socket; s = socket.create_server(("algo-3", 7791)); s.accept(); s.accept()'
          echo no pictures > /opt/ml/output/failure; exit 3
        fi
        trap 'echo asked to stop; exit 9' TERM
        until echo ready 2>/dev/null >/dev/tcp/algo-3/7791; do sleep 0.1; done
        while :; do sleep 0.1; done)",
      3);
  launch();
  const JournalEvent last = end();
  EXPECT_EQ(last.kind, "failed");
  EXPECT_EQ(last.message, "AlgorithmError: algo-3: no pictures\n, exit code: 3");
  EXPECT_THAT(log("algo-1"), HasSubstr("asked to stop"));
  EXPECT_THAT(log("algo-2"), HasSubstr("asked to stop"));
}

// Files stand for the devices: what is shown is who gets which, not that CUDA runs.
TEST_F(MembersTest, EachInstanceHasGpusOfItsOwnAndSeesNoOther) {
  const fs::path devices = folder_.path() / "dev";
  fs::create_directories(devices / "nvidia-caps");
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"}) {
    std::ofstream{devices / name} << "this is " << name << "\n";
  }
  program(
      "export LC_ALL=C; cat /dev/nvidia[0-9]; echo $(cd /dev && ls -d nvidia*); echo "
      "$CUDA_VISIBLE_DEVICES");
  for (InstanceSpec& instance : spec_.instances) instance.gpus = 1;
  spec_.gpus = 1;
  spec_.device_folder = devices.string();
  spec_.gpu_folder = (folder_.path() / ".gpus").string();
  const UniqueFd of_another_job = [&] {
    fs::create_directories(spec_.gpu_folder);
    return lock_file(fs::path{spec_.gpu_folder} / "1").value();
  }();
  launch();
  EXPECT_EQ(end().kind, "completed") << all_logs();
  const bool first = log("algo-1").find("this is nvidia0\n") != std::string::npos;
  const auto seen = [](const std::string& gpu) {
    return "this is " + gpu + "\nnvidia-caps nvidia-uvm " + gpu + " nvidiactl\n0\n";
  };
  EXPECT_THAT(log("algo-1"), HasSubstr(seen(first ? "nvidia0" : "nvidia2")));
  EXPECT_THAT(log("algo-2"), HasSubstr(seen(first ? "nvidia2" : "nvidia0")));
}

TEST_F(MembersTest, AStopReachesAll) {
  program("trap 'echo asked to stop; exit 0' TERM; echo ready; while :; do sleep 0.1; done");
  launch();
  wait_for_line("algo-1", "ready");
  wait_for_line("algo-2", "ready");
  request_stop(job_).value();
  EXPECT_EQ(end().kind, "stopped");
  EXPECT_THAT(log("algo-2"), HasSubstr("asked to stop"));
}

TEST_F(MembersTest, AnAgentThatDoesNotStartIsStartedAgain) {
  program("echo ran");
  const fs::path starts = folder_.path() / "starts";
  const fs::path flaky =
      script(fmt::format("echo start >> {0}; [ $(wc -l < {0}) -gt 2 ] || exit 1; exec {1} \"$@\"",
                         starts.string(), agent_program().string()));
  const std::unique_ptr<Members> members = start(flaky);
  const std::vector<InstanceEnd> ends = members->wait();
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].outcome.kind, "completed") << ends[0].outcome.message << all_logs();
  EXPECT_EQ(read_file(starts).value(), "start\nstart\nstart\n");
  EXPECT_THAT(log("algo-2"), HasSubstr("ran\n"));
}

TEST_F(MembersTest, AnAgentThatNeverStartsIsAFailureWithItsCauseAfterThreeStarts) {
  program("echo ran");
  const fs::path starts = folder_.path() / "starts";
  const std::unique_ptr<Members> members =
      start(script(fmt::format("echo start >> {}; echo no such library; exit 1", starts.string())));
  const std::vector<InstanceEnd> ends = members->wait();
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].outcome.kind, "failed");
  EXPECT_THAT(ends[0].outcome.message,
              StartsWith("InternalServerError: 3 agents were started and none brought it to its "
                         "end: the agent of 'algo-2' did not start: no such library"));
  EXPECT_EQ(read_file(starts).value(), "start\nstart\nstart\n");
}

TEST_F(MembersTest, WhatTheHostLacksForAMomentCostsAnInstanceNoStart) {
  program("echo ran");
  const fs::path starts = folder_.path() / "starts";
  const fs::path counting = script(
      fmt::format("echo start >> {}; exec {} \"$@\"", starts.string(), agent_program().string()));
  // Where the agent's own log goes nothing can be written.
  const fs::path in_the_way = instance_folder(job_, "algo-2") / "agent.out";
  make_folders(in_the_way).value();
  const fs::path lock = instance_folder(job_, "algo-2") / "agent.lock";
  std::ofstream{lock}.flush();
  const std::unique_ptr<Members> members = start(counting);
  // More looks than an instance has starts, each woken by what changes in the job's folder.
  const UniqueFd watch{inotify_init1(IN_CLOEXEC)};
  inotify_add_watch(watch.get(), lock.c_str(), IN_OPEN);
  for (int i = 0; i < 5; ++i) {
    std::ofstream{job_ / fmt::format("change-{}", i)}.flush();
    pollfd waiting{watch.get(), POLLIN, 0};
    ASSERT_GT(poll(&waiting, 1, 60000), 0);
    char events[4096];
    ASSERT_GT(read(watch.get(), events, sizeof events), 0);
  }
  EXPECT_FALSE(fs::exists(starts));
  fs::remove(in_the_way);
  const std::vector<InstanceEnd> ends = members->wait();
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].outcome.kind, "completed") << ends[0].outcome.message << all_logs();
  EXPECT_EQ(read_file(starts).value(), "start\n");
}

TEST_F(MembersTest, AMemberWhoseAgentIsKilledFailsTheJobWithTheTruth) {
  program("echo ready; while :; do sleep 0.1; done");
  launch();
  wait_for_line("algo-2", "ready");
  const std::string folder = instance_folder(job_, "algo-2").string();
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const Result<std::string> line = read_file(entry.path() / "cmdline", 8192);
    if (line && line->find(folder) != std::string::npos &&
        line->find("agent_under_test") != std::string::npos) {
      kill(std::atoi(entry.path().filename().c_str()), SIGKILL);
    }
  }
  const JournalEvent last = end();
  EXPECT_EQ(last.kind, "failed");
  EXPECT_THAT(last.message, StartsWith("InternalServerError: algo-2: the agent was killed"));
}

TEST_F(MembersTest, ALeaderWhoseAgentIsKilledTakesTheOthersWithIt) {
  program("echo ready; while :; do sleep 0.1; done");
  launch();
  wait_for_line("algo-1", "ready");
  wait_for_line("algo-2", "ready");
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const Result<std::string> line = read_file(entry.path() / "cmdline", 8192);
    if (line && line->find(job_.string()) != std::string::npos &&
        line->find("instances") == std::string::npos &&
        line->find("agent_under_test") != std::string::npos) {
      kill(std::atoi(entry.path().filename().c_str()), SIGKILL);
    }
  }
  wait(job_, [&] { return !agent_alive(job_); });
  launch();  // as the server does
  const JournalEvent last = end();
  EXPECT_EQ(last.kind, "failed");
  EXPECT_THAT(last.message, HasSubstr("algo-1: the agent was killed"));
  EXPECT_FALSE(agent_alive(instance_folder(job_, "algo-2")));
  EXPECT_EQ(read_journal(instance_folder(job_, "algo-2")).value().back().kind, "stopped");
}

}  // namespace
}  // namespace atelier::agent
