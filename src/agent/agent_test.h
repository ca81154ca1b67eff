// A job's folder, a real S3 in this process, and an agent on it: real bubblewrap, real programs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/journal.h"
#include "agent/log_file.h"
#include "agent/own_network_test.h"
#include "agent/spec.h"
#include "base/file.h"
#include "objects/testing.h"

namespace atelier::agent {

namespace fs = std::filesystem;

class AgentTest : public testing::Test {
 protected:
  AgentTest() {
    make_folders(job_ / "logs").value();
    store_->create_bucket("data").value();
    store_->create_bucket("out").value();
    spec_.job_name = "job-1";
    spec_.job_arn = "arn:aws:sagemaker:us-west-2:000000000000:training-job/job-1";
    spec_.region = "us-west-2";
    spec_.s3 = s3_.endpoint();
    spec_.instance_type = "ml.m5.large";
    spec_.output_s3_uri = "s3://out/prefix/";
    spec_.vcpus = 2;
    spec_.memory_gib = 2;
    spec_.stop_grace = std::chrono::seconds{1};
    spec_.host_network = !no_own_network().empty();
  }

  void native(const std::string& script) {
    spec_.runtime.kind = compute::RuntimeKind::kBuiltIn;
    spec_.runtime.program = {"/bin/bash", "-c", script};
  }
  // A job in script mode whose source directory has these files.
  void script(const std::map<std::string, std::string>& files, const std::string& entry_point) {
    const fs::path code = folder_.path() / "code";
    make_folders(code).value();
    for (const auto& [name, text] : files) std::ofstream{code / name} << text;
    const fs::path archive = folder_.path() / "sourcedir.tar.gz";
    const std::string command = "tar -C " + code.string() + " -czf " + archive.string() + " .";
    ASSERT_EQ(std::system(command.c_str()), 0);
    store_->put_file("data", "source/sourcedir.tar.gz", archive, {}, {}).value();
    spec_.runtime.kind = compute::RuntimeKind::kScript;
    spec_.runtime.program = {"/usr/bin/python3"};
    spec_.runtime.framework_module = "sagemaker_pytorch_container.training:main";
    spec_.hyperparameters["sagemaker_program"] = "\"" + entry_point + "\"";
    spec_.hyperparameters["sagemaker_submit_directory"] = "\"s3://data/source/sourcedir.tar.gz\"";
  }
  void channel(const std::string& name, const std::map<std::string, std::string>& objects) {
    for (const auto& [key, bytes] : objects) store_->put("data", key, bytes, {}).value();
    spec_.channels.push_back({.name = name, .s3_uri = "s3://data/" + name});
  }

  // As the SDK v3 starts a job.
  void driver(const std::string& script) {
    channel("sm_drivers", {{"sm_drivers/sm_train.sh", script}});
    spec_.runtime.kind = compute::RuntimeKind::kScript;
    spec_.runtime.program = {"/usr/bin/python3"};
    spec_.container_entrypoint = {"/bin/bash"};
    spec_.container_arguments = {"-c",
                                 "chmod +x /opt/ml/input/data/sm_drivers/sm_train.sh && "
                                 "/opt/ml/input/data/sm_drivers/sm_train.sh"};
  }

  void write_spec() { write_file_durably(job_ / "spec.json", to_json(spec_), 0600).value(); }
  // Runs the job here, to its end.
  JournalEvent run() {
    write_spec();
    run_agent(job_).value();
    return last();
  }
  std::vector<JournalEvent> events() { return read_journal(job_).value(); }
  JournalEvent last() {
    const std::vector<JournalEvent> all = events();
    return all.empty() ? JournalEvent{} : all.back();
  }
  std::vector<std::string> kinds() {
    std::vector<std::string> kinds;
    for (const JournalEvent& event : events()) kinds.push_back(event.kind);
    return kinds;
  }
  std::string log() {
    std::string text;
    const LogPage page = read_log(job_ / "logs/algo-1.log", 0, SIZE_MAX, SIZE_MAX).value();
    for (const LogEvent& event : page.events) text += event.message + "\n";
    return text;
  }
  // Returns once the log has the line; fails the test after 30 seconds without a change.
  void wait_for_line(const std::string& line) {
    const UniqueFd watch{inotify_init1(IN_CLOEXEC)};
    inotify_add_watch(watch.get(), (job_ / "logs").c_str(), IN_MODIFY | IN_CREATE);
    while (log().find(line) == std::string::npos) {
      pollfd waiting{watch.get(), POLLIN, 0};
      ASSERT_GT(poll(&waiting, 1, 30000), 0) << "no line '" << line << "' in:\n" << log();
      char events[4096];
      ASSERT_GT(read(watch.get(), events, sizeof events), 0);
    }
  }
  // Returns once the store has the object; fails the test after 30 seconds without it.
  void wait_for_object(const std::string& bucket, const std::string& key) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
    while (!store_->head(bucket, key)) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "no " << key << "\n" << log();
      usleep(10'000);
    }
  }
  // Returns once the journal has the event; fails the test after 30 seconds without a change.
  void wait_for_event(const std::string& kind) {
    const UniqueFd watch{inotify_init1(IN_CLOEXEC)};
    inotify_add_watch(watch.get(), job_.c_str(), IN_MODIFY | IN_CREATE);
    while (!testing::Value(kinds(), testing::Contains(kind))) {
      pollfd waiting{watch.get(), POLLIN, 0};
      ASSERT_GT(poll(&waiting, 1, 30000), 0) << "no event '" << kind << "'\n" << log();
      char events[4096];
      ASSERT_GT(read(watch.get(), events, sizeof events), 0);
    }
  }
  // The names and contents of an archive in the output bucket, as tar sees it.
  std::string untar(const std::string& key) {
    const std::string bytes = store_->get_bytes("out", key, 1 << 20).value();
    const fs::path file = folder_.path() / "result.tar.gz";
    const fs::path target = folder_.path() / "result";
    fs::remove_all(target);
    make_folders(target).value();
    std::ofstream{file, std::ios::binary} << bytes;
    const std::string command = "tar -C " + target.string() + " -xzf " + file.string() + " && cd " +
                                target.string() +
                                " && find . -type f | sort | xargs -r grep -H '' > ../listing";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read_file(folder_.path() / "listing").value();
  }
  std::vector<std::string> keys(const std::string& bucket) {
    std::vector<std::string> keys;
    const objects::ListPage page = store_->list(bucket, {}).value();
    for (const objects::ObjectInfo& object : page.objects) keys.push_back(object.key);
    return keys;
  }
  // A second process for the agent; this one lives on when it is killed.
  pid_t launch() {
    write_spec();
    const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "agent_under_test";
    launch_agent(program, job_).value();
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const Result<std::string> line = read_file(entry.path() / "cmdline", 8192);
      if (line && line->find(job_.string()) != std::string::npos &&
          line->find("agent_under_test") != std::string::npos) {
        return std::atoi(entry.path().filename().c_str());
      }
    }
    return -1;
  }

  TempFolder folder_ = TempFolder::create().value();
  fs::path job_ = folder_.path() / "job";
  objects::testing::EmbeddedS3 s3_{folder_.path() / "s3"};
  std::unique_ptr<objects::ObjectStore> store_ = objects::make_s3_client(s3_.endpoint());
  AgentSpec spec_;
};

}  // namespace atelier::agent
