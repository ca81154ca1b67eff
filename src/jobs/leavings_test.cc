// What a start does with what it finds: links, strangers' files, and jobs without their records.
#include "jobs/leavings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/id.h"
#include "jobs/service_test.h"

namespace atelier::jobs {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TestJob;
using testing::wait_for_end;

class LeavingsTest : public testing::ServiceTest {};

TEST_F(LeavingsTest, AFolderThatIsALinkIsRefusedByItsNameAndLosesNothing) {
  const fs::path victim = folder_.path() / "victim";
  const std::string pool = "a." + random_id();
  options_.cache_folder = folder_.path() / "cache";
  ASSERT_TRUE(make_folders(victim / pool / "precious"));
  ASSERT_TRUE(make_folders(options_.folder));
  for (const fs::path& folder : {options_.warm_folder(), options_.removed_folder(),
                                 options_.cache_folder, options_.folder}) {
    std::error_code failure;
    fs::rename(folder, folder_.path() / "moved", failure);
    fs::create_directory_symlink(victim, folder);
    const auto refused = Service::open(options_, system_clock());
    EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(refused.error().message, HasSubstr("'" + folder.string() + "' is a link"));
    fs::remove(folder);
    fs::rename(folder_.path() / "moved", folder, failure);
  }
  EXPECT_TRUE(fs::exists(victim / pool / "precious"));
  open();
}

TEST_F(LeavingsTest, WhatIsNoneOfOursIsLeftAloneByTheNextStart) {
  const fs::path victim = folder_.path() / "victim";
  ASSERT_TRUE(make_folders(victim / "tmp"));
  ASSERT_TRUE(make_folders(options_.removed_folder() / "notes"));
  ASSERT_TRUE(make_folders(options_.warm_folder() / "notes"));
  ASSERT_TRUE(make_folders(options_.warm_folder() / "a.1234"));
  ASSERT_TRUE(replace_file(options_.warm_folder() / ("file." + random_id()), "x"));
  fs::create_directory_symlink(victim, options_.warm_folder() / ("link." + random_id()));
  fs::create_directory_symlink(victim, options_.removed_folder() / ("link." + random_id()));
  const auto count = [](const fs::path& folder) {
    return std::distance(fs::directory_iterator{folder}, fs::directory_iterator{});
  };
  open_and_run();
  create({.name = "a"});  // after the engine's thread has cleaned up
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Completed");
  EXPECT_EQ(count(options_.warm_folder()), 4);
  EXPECT_EQ(count(options_.removed_folder()), 2);
  EXPECT_EQ(count(victim), 1);
}

TEST_F(LeavingsTest, JobsAndPoolsWithoutTheirRecordsAreRefusedByNameAndKept) {
  open_and_run();
  create({.name = "a"});
  wait_for_end(*service_, "a");
  wait_for_agent("a");
  service_.reset();
  const fs::path records = options_.folder / "jobs.db";
  fs::rename(records, folder_.path() / "saved");
  const auto is_refused = [&](const std::string& why, const std::string& what) {
    const auto refused = Service::open(options_, system_clock());
    EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(refused.error().message, HasSubstr("jobs.db' is " + why));
    EXPECT_THAT(refused.error().message, HasSubstr(what));
  };
  is_refused("missing", "folders of jobs");
  ASSERT_TRUE(replace_file(records, ""));
  is_refused("empty", "folders of jobs");
  fs::remove(records);
  fs::rename(options_.folder / "a", folder_.path() / "a");
  ASSERT_TRUE(make_folders(options_.warm_folder() / ("a." + random_id())));
  is_refused("missing", "warm pools");
  fs::rename(folder_.path() / "saved", records);
  fs::rename(folder_.path() / "a", options_.folder / "a");
  open();
  EXPECT_EQ(service_->describe("a")->status, "Completed");
}

TEST_F(LeavingsTest, AJobsFolderThatIsALinkIsNotCleaned) {
  open_and_run();
  create({.name = "a"});
  wait_for_end(*service_, "a");
  wait_for_agent("a");
  service_.reset();
  const fs::path victim = folder_.path() / "victim";
  fs::rename(options_.folder / "a", victim);
  fs::remove(victim / "agent.out");
  ASSERT_TRUE(make_folders(victim / "tmp"));  // as of an agent that was killed while it cleaned up
  fs::create_directory_symlink(victim, options_.folder / "b");
  open_and_run();
  create({.name = "c"});
  EXPECT_EQ(wait_for_end(*service_, "c").status, "Completed");
  EXPECT_FALSE(fs::exists(victim / "agent.out")) << "no agent came";
}

}  // namespace
}  // namespace atelier::jobs
