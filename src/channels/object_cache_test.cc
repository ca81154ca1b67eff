// The cache that jobs of a host share, over a real S3 whose requests are counted.
#include "channels/object_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "channels/file_channel.h"
#include "objects/testing.h"

namespace atelier::channels {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CountingHandler final : public http::Handler {
 public:
  explicit CountingHandler(http::Handler& inner) : inner_(inner) {}
  std::unique_ptr<http::Exchange> begin(const http::RequestHead& head) override {
    const bool lists = head.target.find("list-type") != std::string::npos;
    if (head.method == "GET") ++(lists ? lists_seen : gets);
    if (head.target.find("atelier-readable") != std::string::npos) ++asked;
    return inner_.begin(head);
  }
  std::atomic<int> gets = 0;
  std::atomic<int> lists_seen = 0;
  std::atomic<int> asked = 0;

 private:
  http::Handler& inner_;
};

class ObjectCacheTest : public testing::Test {
 protected:
  ObjectCacheTest() {
    store_->create_bucket("data").value();
    for (int i = 0; i < 20; ++i) {
      store_
          ->put("data", fmt::format("d/{}/{}", i % 3, i),
                std::string(1000, static_cast<char>('a' + i)), {})
          .value();
    }
    handler_.gets = 0;
  }
  ObjectCache open(std::uint64_t limit = 1 << 20, bool may_link = true) {
    return ObjectCache::open(cache_, limit, {"store"}, may_link).value();
  }
  FileChannelReport fill(const std::string& job, ObjectCache cache) {
    ChannelSource source;
    source.s3_uri = "s3://data/d";
    return fill_file_channel(*store_, source, folder_.path() / job, &cache, {}).value();
  }
  std::string text(const std::string& job, const std::string& name) {
    return read_file(folder_.path() / job / name).value();
  }

  TempFolder folder_ = TempFolder::create().value();
  fs::path cache_ = folder_.path() / "cache";
  std::unique_ptr<objects::S3Service> service_ =
      objects::S3Service::open(folder_.path() / "s3", system_clock(), "us-west-2").value();
  objects::testing::S3Handler s3_{*service_, system_clock()};
  CountingHandler handler_{s3_};
  http::Server server_ = http::Server::start({}, handler_).value();
  std::unique_ptr<objects::ObjectStore> store_ =
      objects::make_s3_client({.url = "http://127.0.0.1:" + std::to_string(server_.port()),
                               .region = "us-west-2",
                               .credentials = objects::testing::test_credentials(),
                               .ca_file = {}});
};

TEST_F(ObjectCacheTest, NothingIsRemovedThatItDidNotMake) {
  fill("one", open());
  fs::remove_all(folder_.path() / "one");
  // The bodies of an object store, say, where somebody has linked the wrong folder.
  const std::string id(30, '0');
  const std::vector<fs::path> others{
      "objects/00000001/ab" + id, "objects/ab/precious",   "objects/ab/cd" + std::string(62, '0'),
      "objects/my.part",          "objects/ab/.mine.part", "precious"};
  for (const fs::path& other : others) {
    make_folders((cache_ / other).parent_path()).value();
    replace_file(cache_ / other, "mine").value();
    const timespec times[2] = {{1, 0}, {1, 0}};  // long ago
    utimensat(AT_FDCWD, (cache_ / other).c_str(), times, 0);
  }
  replace_file(cache_ / "boot", "another").value();
  open();
  EXPECT_EQ(ObjectCache::status(cache_)->files, 0U)
      << "after a power cut none of its own is trusted";
  fill("two", open());
  fs::remove_all(folder_.path() / "two");
  EXPECT_GT(*ObjectCache::clear(cache_), 0U);
  fill("three", open(1));
  for (const fs::path& other : others) EXPECT_TRUE(fs::exists(cache_ / other)) << other;
}

TEST_F(ObjectCacheTest, AFolderThatIsALinkIsRefusedByItsPath) {
  fs::create_directories(folder_.path() / "victim/objects");
  const auto refused = [&](const fs::path& link) {
    fs::create_directory_symlink(folder_.path() / "victim", link);
    EXPECT_THAT(ObjectCache::open(cache_, 1 << 20, {"store"}, true).error().message,
                HasSubstr("'" + link.string() + "' is a link"));
    EXPECT_FALSE(ObjectCache::clear(cache_));
    EXPECT_FALSE(ObjectCache::status(cache_));
    fs::remove(link);
  };
  refused(cache_);
  fs::create_directories(cache_);
  refused(cache_ / "objects");
}

TEST_F(ObjectCacheTest, TheSecondJobOfAHostDownloadsNothing) {
  EXPECT_EQ(fill("one", open()).from_cache, 0U);
  EXPECT_EQ(handler_.gets, 20);
  handler_.lists_seen = 0;
  EXPECT_EQ(fill("two", open()).from_cache, 20U);
  EXPECT_EQ(handler_.gets, 20);
  EXPECT_EQ(handler_.lists_seen, 1);
  EXPECT_EQ(text("two", "1/4"), std::string(1000, 'e'));
  struct stat one {
  }, two{};
  ASSERT_EQ(stat((folder_.path() / "one/1/4").c_str(), &one), 0);
  ASSERT_EQ(stat((folder_.path() / "two/1/4").c_str(), &two), 0);
  EXPECT_EQ(one.st_ino, two.st_ino);
}

// Who may list but not read gets no byte from the disk that the store would not give.
TEST_F(ObjectCacheTest, AHitNeedsTheRightToReadTheObject) {
  fill("one", open());
  s3_.set_authority(access::Authority{
      {{access::Policy::parse(
            R"({"Statement":[{"Effect":"Allow","Action":"s3:ListBucket","Resource":"*"},
        {"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::data/d/1/*"}]})")
            .value()}}});
  ObjectCache cache = open();
  ChannelSource source;
  source.s3_uri = "s3://data/d";
  const auto refused = fill_file_channel(*store_, source, folder_.path() / "two", &cache, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied) << refused.error().message;
  EXPECT_FALSE(fs::exists(folder_.path() / "two/0/0"));
  source.s3_uri = "s3://data/d/1/";
  handler_.gets = 0;
  handler_.asked = 0;
  EXPECT_EQ(fill_file_channel(*store_, source, folder_.path() / "three", &cache, {})->from_cache,
            7U);
  EXPECT_EQ(handler_.gets, 0);
  EXPECT_EQ(handler_.asked, 1) << "one request for up to a thousand objects";
}

TEST_F(ObjectCacheTest, OfAStoreThatCannotBeAskedNothingIsSharedBetweenKeys) {
  ChannelSource source;
  source.s3_uri = "s3://data/d";
  const auto fill_as = [&](const std::string& job, const std::string& name) {
    ObjectCache cache = ObjectCache::open(cache_, 1 << 20, {name, false}, true).value();
    return fill_file_channel(*store_, source, folder_.path() / job, &cache, {})->from_cache;
  };
  EXPECT_EQ(fill_as("one", "store ann"), 0U);
  EXPECT_EQ(fill_as("two", "store bob"), 0U);
  EXPECT_EQ(fill_as("three", "store ann"), 20U);
  EXPECT_EQ(handler_.asked, 0);
}

TEST_F(ObjectCacheTest, AnotherVersionIsAnotherEntry) {
  fill("one", open());
  store_->put("data", "d/1/4", "new", {}).value();
  EXPECT_EQ(fill("two", open()).from_cache, 19U);
  EXPECT_EQ(text("two", "1/4"), "new");
  EXPECT_EQ(text("one", "1/4"), std::string(1000, 'e'));
}

TEST_F(ObjectCacheTest, WithoutLinksAJobCanOnlyChangeItsOwnCopy) {
  fill("one", open(1 << 20, false));
  std::ofstream{folder_.path() / "one/1/4"} << "spoilt";
  EXPECT_EQ(fill("two", open(1 << 20, false)).from_cache, 20U);
  EXPECT_EQ(text("two", "1/4"), std::string(1000, 'e'));
}

TEST_F(ObjectCacheTest, WhatWasUsedLastStaysAndWhatAJobHasLinkedToo) {
  fill("one", open());
  // Beyond the limit, and all of it linked: the second dataset goes past the cache.
  store_->put("data", "e/big", std::string(10'000, 'x'), {}).value();
  ChannelSource big;
  big.s3_uri = "s3://data/e";
  ObjectCache small = open(25'000);
  fill_file_channel(*store_, big, folder_.path() / "big", &small, {}).value();
  EXPECT_EQ(ObjectCache::status(cache_)->files, 20U);
  EXPECT_EQ(ObjectCache::status(cache_)->linked_files, 20U);
  EXPECT_EQ(text("big", "big"), std::string(10'000, 'x'));
  // Once the job is gone the oldest ones make room.
  fs::remove_all(folder_.path() / "one");
  fs::remove_all(folder_.path() / "big");
  int used = 1'000'000;
  for (const auto& entry : fs::recursive_directory_iterator(cache_ / "objects")) {
    if (!entry.is_regular_file()) continue;
    const timespec times[2] = {{used += 10, 0}, {0, UTIME_OMIT}};
    ASSERT_EQ(utimensat(AT_FDCWD, entry.path().c_str(), times, 0), 0);
  }
  fill_file_channel(*store_, big, folder_.path() / "big", &small, {}).value();
  const CacheStatus status = ObjectCache::status(cache_).value();
  EXPECT_EQ(status.files, 16U);
  EXPECT_EQ(status.bytes, 25'000U);
  EXPECT_EQ(ObjectCache::clear(cache_).value(), 15'000U) << "the big one is linked";
}

TEST_F(ObjectCacheTest, JobsAtTheSameTimeDownloadEachObjectOnce) {
  std::vector<std::thread> jobs;
  for (int job = 0; job < 4; ++job) {
    jobs.emplace_back([this, job] { fill("job" + std::to_string(job), open()); });
  }
  for (std::thread& job : jobs) job.join();
  EXPECT_EQ(handler_.gets, 20);
  for (int job = 0; job < 4; ++job) {
    EXPECT_EQ(text("job" + std::to_string(job), "0/0"), std::string(1000, 'a'));
  }
}

TEST_F(ObjectCacheTest, AfterAPowerCutOnlyWhatWasSyncedIsTrusted) {
  fill("one", open());
  ObjectCache cache = open();
  cache.sync().value();
  store_->put("data", "d/late", "late", {}).value();
  fill("two", open());
  // Another boot.
  const std::string boot = read_file(cache_ / "boot").value();
  replace_file(cache_ / "boot", "another" + boot.substr(boot.find('\n'))).value();
  handler_.gets = 0;
  EXPECT_EQ(fill("three", open()).from_cache, 20U);
  EXPECT_EQ(handler_.gets, 1);
}

TEST_F(ObjectCacheTest, AnEntryOfAWrongSizeAndADamagedBootFileAreNoTrouble) {
  fill("one", open());
  fs::remove_all(folder_.path() / "one");
  for (const auto& entry : fs::recursive_directory_iterator(cache_ / "objects")) {
    if (entry.is_regular_file()) fs::resize_file(entry.path(), 10);
  }
  EXPECT_EQ(fill("two", open()).from_cache, 0U);
  EXPECT_EQ(text("two", "1/4"), std::string(1000, 'e'));
  replace_file(cache_ / "boot", "\xff\xff nonsense").value();
  EXPECT_EQ(fill("three", open()).from_cache, 0U) << "nothing is known to be on the disk";
  EXPECT_EQ(text("three", "1/4"), std::string(1000, 'e'));
}

TEST_F(ObjectCacheTest, AStopEndsIt) {
  ObjectCache cache = open();
  ChannelSource source;
  source.s3_uri = "s3://data/d";
  const auto report =
      fill_file_channel(*store_, source, folder_.path() / "x", &cache, {}, [] { return true; });
  EXPECT_EQ(report.error().code, Code::kCancelled);
}

TEST_F(ObjectCacheTest, AStopInTheMiddleOfABodyEndsTheDownloadAndLeavesNoFile) {
  store_->put("data", "large/object", std::string(48 << 20, 'x'), {}).value();
  objects::S3ClientOptions options;
  // True as soon as the body is on its way.
  options.cancelled = [this] { return handler_.gets > 0; };
  const auto store =
      objects::make_s3_client({.url = "http://127.0.0.1:" + std::to_string(server_.port()),
                               .region = "us-west-2",
                               .credentials = objects::testing::test_credentials(),
                               .ca_file = {}},
                              options);
  handler_.gets = 0;
  const auto report = fill_file_channel(*store, "s3://data/large", folder_.path() / "stopped", {});
  EXPECT_EQ(report.error().code, Code::kCancelled);
  EXPECT_LE(handler_.gets, 8)
      << "its ranges were stopped while they were read, and not tried again";
  EXPECT_TRUE(fs::is_empty(folder_.path() / "stopped"));
}

TEST_F(ObjectCacheTest, AJobThatIsKilledWhileItDownloadsLeavesNothingThatIsTakenForWhole) {
  for (int round = 0; round < 5; ++round) {
    const pid_t pid = fork();
    if (pid == 0) {
      // Half an entry under a download's name, and a claim that ends with the process.
      fs::create_directories(cache_ / "objects/ab");
      std::ofstream{cache_ / "objects/ab/.x.part"} << "half";
      _exit(0);
    }
    waitpid(pid, nullptr, 0);
  }
  EXPECT_EQ(fill("one", open()).from_cache, 0U);
  EXPECT_EQ(ObjectCache::status(cache_)->files, 20U);
}

TEST_F(ObjectCacheTest, ADownloadThatWaitsForLongIsNotTakenForOneThatWasKilled) {
  const fs::path waits = cache_ / "objects/ab/.0123456789abcdef.part";
  const fs::path killed = cache_ / "objects/ab/.fedcba9876543210.part";
  fs::create_directories(waits.parent_path());
  const UniqueFd fd = *open_file(waits, O_RDWR | O_CREAT);
  ASSERT_EQ(flock(fd.get(), LOCK_EX), 0);
  std::ofstream{killed} << "half";
  for (const fs::path& path : {waits, killed}) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours{2});
  }
  EXPECT_EQ(ObjectCache::status(cache_)->files, 0U);
  EXPECT_TRUE(fs::exists(killed)) << "to look changes nothing";
  fill("one", open());
  EXPECT_TRUE(fs::exists(waits));
  EXPECT_FALSE(fs::exists(killed));
}

}  // namespace
}  // namespace atelier::channels
