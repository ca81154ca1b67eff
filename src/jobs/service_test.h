// The service with real agents' processes (jobs/fake_agent.cc). Journals are looked at only when a
// notice says so (the slow look is an hour away), so a test that ends shows that nothing waits for
// it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>

#include "base/file.h"
#include "jobs/service.h"
#include "jobs/testing.h"

namespace atelier::jobs::testing {

class ServiceTest : public ::testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::create();
  ServiceOptions options_ = testing::options_for(folder_.path() / "jobs", FAKE_AGENT);
  std::unique_ptr<Service> service_;

  ServiceTest() { options_.scan_interval = std::chrono::hours{1}; }
  void open() {
    service_.reset();
    auto service = Service::open(options_, system_clock());
    ASSERT_TRUE(service) << service.error().message;
    service_ = *std::move(service);
  }
  void open_and_run() {
    open();
    service_->run();
  }
  void create(const TestJob& job) {
    const auto arn = service_->create({request_for(job), ""});
    ASSERT_TRUE(arn) << arn.error().message;
  }
  std::string starts(const std::string& name) {
    return read_file(options_.folder / name / "starts").value_or("");
  }
  // Waits until it is gone.
  void kill_agent(const std::string& name) {
    const UniqueFd lock = *open_file(options_.folder / name / "agent.lock", O_RDONLY);
    struct stat wanted {};
    ASSERT_EQ(fstat(lock.get(), &wanted), 0);
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const auto command = read_file(entry.path() / "cmdline");
      const std::string folder = (options_.folder / name).string() + '\0';
      if (command && command->ends_with(folder)) {
        kill(std::stoi(entry.path().filename().string()), SIGKILL);
      }
    }
    ASSERT_EQ(flock(lock.get(), LOCK_SH), 0);
    ASSERT_EQ(flock(lock.get(), LOCK_UN), 0);
  }
  // Until it has left, some milliseconds after its last event: its lock is there to be had then.
  void wait_for_agent(const std::string& name) {
    const UniqueFd lock = *open_file(options_.folder / name / "agent.lock", O_RDONLY);
    ASSERT_EQ(flock(lock.get(), LOCK_SH), 0);
    ASSERT_EQ(flock(lock.get(), LOCK_UN), 0);
  }
  static bool trains(const TrainingJob& job) { return job.secondary_status == "Training"; }
};

}  // namespace atelier::jobs::testing
