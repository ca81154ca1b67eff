// The store of jobs on a disk that is full: in a mount namespace of its own, on a file system of a
// few MiB.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/file.h"
#include "jobs/store.h"

namespace atelier::jobs {
namespace {

namespace fs = std::filesystem;

TrainingJob job_of(int number) {
  TrainingJob job = new_training_job(fmt::format("job-{}", number), Time{});
  job.request_json = std::string(3000, 'x');
  job.warm.status = kWarmInUse;
  job.warm.name = job.name + ".f00d";
  return job;
}

// As a program does that writes until it cannot.
void fill(const fs::path& file) {
  std::ofstream out{file};
  const std::string block(4096, 'x');
  while (out.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
  }
}

void end_jobs_on_a_full_disk(const fs::path& mount_point) {
  auto opened = Store::open(mount_point / "jobs.db");
  ASSERT_TRUE(opened) << opened.error().message;
  Store& store = **opened;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(store.insert(job_of(i)));
  for (int round = 0; round < 2; ++round) {
    const fs::path pool = mount_point / "pool";
    fill(pool);
    Result<std::uint64_t> inserted = std::uint64_t{0};
    for (int i = 0; i < 2000 && inserted; ++i) {
      inserted = store.insert(job_of(1000 + 2000 * round + i));
    }
    ASSERT_FALSE(inserted);
    EXPECT_EQ(inserted.error().code, Code::kResourceExhausted);
    TrainingJob job = *store.load(fmt::format("job-{}", 2 * round));
    const std::uint64_t version = job.version++;
    job.status = job.secondary_status = "Completed";
    job.warm.status = kWarmTerminated;
    const Result<void> saved = store.save(job, version);
    ASSERT_TRUE(saved) << "the end of a job: " << saved.error().message;
    const Result<void> removed = store.remove(fmt::format("job-{}", 2 * round + 1), 0);
    ASSERT_TRUE(removed) << removed.error().message;
    fs::remove(pool);  // as the pool's end does
    const auto again = store.insert(job_of(10 + round));
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_TRUE(store.forget_removed("job-1")) << "with it the reserve is there again";
  }
}

TEST(StoreDisk, WhatEndsAJobIsSavedOnAFullDisk) {
  const TempFolder folder = *TempFolder::create();
  constexpr int kNoNamespace = 77;
  const pid_t child = fork();
  if (child == 0) {
    const bool ready = unshare(CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) == 0 &&
                       mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=16m") == 0;
    if (!ready) _exit(kNoNamespace);
    end_jobs_on_a_full_disk(folder.path());
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespace) {
    GTEST_SKIP() << "this machine lets us mount no file system of our own";
  }
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace atelier::jobs
