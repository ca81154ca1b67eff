// Uploads of the LocalStore: parts side by side in one file, and what can come in between.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>
#include <thread>

#include "base/rng.h"
#include "objects/local_store.h"

namespace atelier::objects {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPart = kMinPartBytes;

std::string bytes_of(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<char>(rng(seed, 1, i / 8) >> (i % 8));
  return bytes;
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

class UploadsTest : public testing::Test {
 protected:
  UploadsTest() {
    reopen();
    EXPECT_TRUE(store_->create_bucket("bucket", ""));
  }
  void reopen() {
    store_.reset();
    store_ = *LocalStore::open(folder_.path(), system_clock());
  }
  UploadRecord start() {
    UploadRecord record{.bucket = "bucket", .key = "key"};
    record.id = *store_->create_upload(record);
    return record;
  }
  std::unique_ptr<PendingBody> begin(const UploadRecord& to, unsigned number,
                                     std::string_view bytes) {
    auto body = *store_->start_part(to, number, bytes.size());
    EXPECT_TRUE(body->append(as_bytes(bytes)));
    return body;
  }
  Result<PartRecord> store(const UploadRecord& to, unsigned number, std::string_view bytes,
                           std::unique_ptr<PendingBody> body) {
    const PartRecord part{.number = number, .size = 0, .etag = to_hex(digest(Digest::kMd5, bytes))};
    return store_->put_part(to, part, std::move(body));
  }
  CompletedPart upload(const UploadRecord& to, unsigned number, std::string_view bytes) {
    const Result<PartRecord> part = store(to, number, bytes, begin(to, number, bytes));
    EXPECT_TRUE(part) << part.error().message;
    return {number, part->etag};
  }
  Result<ObjectRecord> complete(const UploadRecord& to, std::vector<CompletedPart> parts,
                                Conditions conditions = {}) {
    return store_->complete_upload({.bucket = "bucket",
                                    .key = "key",
                                    .id = to.id,
                                    .parts = std::move(parts),
                                    .conditions = std::move(conditions)});
  }
  std::string object() {
    const auto found = store_->get("bucket", "key");
    if (!found) return found.error().message;
    if (!found->second.file) return found->second.bytes;
    std::string bytes(found->first.size + 1, '\0');
    const ssize_t got = pread(found->second.file.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<std::size_t>(got));  // what is behind the end would show
    return bytes;
  }
  std::set<ino_t> files() {
    std::set<ino_t> inodes;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path() / "bodies")) {
      struct stat status {};
      if (entry.is_regular_file() && stat(entry.path().c_str(), &status) == 0)
        inodes.insert(status.st_ino);
    }
    return inodes;
  }

  TempFolder folder_ = *TempFolder::create();
  std::unique_ptr<LocalStore> store_;
};

TEST_F(UploadsTest, PartsOfOneSizeBecomeTheObjectWithoutACopy) {
  const UploadRecord record = start();
  const std::string a = bytes_of(kPart, 1);
  const std::string b = bytes_of(kPart, 2);
  const std::string end = bytes_of(kPart / 2, 3);
  std::vector<CompletedPart> parts(3);
  parts[1] = upload(record, 2, b);
  parts[2] = upload(record, 3, end);
  parts[0] = upload(record, 1, a);
  const std::set<ino_t> before = files();
  EXPECT_EQ(before.size(), 1U) << "one file for all";
  ASSERT_TRUE(complete(record, parts));
  EXPECT_EQ(files(), before) << "and it is the object's";
  EXPECT_TRUE(object() == a + b + end);
  reopen();
  EXPECT_TRUE(object() == a + b + end);
}

TEST_F(UploadsTest, ASmallLastPartIsPutInItsPlace) {
  const UploadRecord record = start();
  const std::string a = bytes_of(kPart, 1);
  const std::vector<CompletedPart> parts = {upload(record, 1, a), upload(record, 2, "the end")};
  ASSERT_TRUE(complete(record, parts));
  EXPECT_TRUE(object() == a + "the end");
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(UploadsTest, PartsOfOddSizesAreJoined) {
  const UploadRecord record = start();
  const std::string a = bytes_of(kPart + 7, 1);
  const std::string b = bytes_of(kPart + 1000, 2);
  const std::string c = bytes_of(kPart, 3);
  // 2 comes first and is larger than 1; 3 is smaller than its place.
  std::vector<CompletedPart> parts(4);
  parts[1] = upload(record, 2, b);
  parts[0] = upload(record, 1, a);
  parts[2] = upload(record, 3, c);
  parts[3] = upload(record, 4, "x");
  ASSERT_TRUE(complete(record, parts));
  EXPECT_TRUE(object() == a + b + c + "x");
  EXPECT_EQ(files().size(), 1U) << "the parts' files are gone";
}

TEST_F(UploadsTest, APartThatComesAgainReplacesTheFirstAlsoAfterARestart) {
  const UploadRecord record = start();
  const std::string old = bytes_of(kPart, 1);
  const std::string fresh = bytes_of(kPart, 9);
  const std::string b = bytes_of(kPart, 2);
  upload(record, 1, old);
  const CompletedPart two = upload(record, 2, b);
  reopen();
  const CompletedPart one = upload(record, 1, fresh);
  ASSERT_TRUE(complete(record, {one, two}));
  EXPECT_TRUE(object() == fresh + b);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(UploadsTest, APartThatFailsLeavesItsPlaceToTheNextAttempt) {
  const UploadRecord record = start();
  const std::string a = bytes_of(kPart, 1);
  const std::string b = bytes_of(1000'000, 2);
  { const auto cut_off = begin(record, 1, std::string(kPart, 'x')); }
  EXPECT_TRUE(files().empty());
  const CompletedPart one = upload(record, 1, a);
  { const auto longer = begin(record, 2, std::string(kPart, 'x')); }
  const CompletedPart two = upload(record, 2, b);
  ASSERT_TRUE(complete(record, {one, two}));
  EXPECT_TRUE(object() == a + b) << "nothing of the longer attempt is left behind the end";
  auto body = *store_->start_part(start(), 1, kPart);
  ASSERT_TRUE(body->append(as_bytes(a)));
  EXPECT_FALSE(body->append(as_bytes("more"))) << "than was announced";
}

TEST_F(UploadsTest, APartOnItsWayNeverWritesIntoAnObject) {
  const UploadRecord record = start();
  const std::string a = bytes_of(kPart, 1);
  const std::string b = bytes_of(kPart, 2);
  const std::vector<CompletedPart> parts = {upload(record, 1, a), upload(record, 2, b)};
  auto late = *store_->start_part(record, 3, kPart);
  ASSERT_TRUE(late->append(as_bytes(std::string(1000, 'l'))));
  ASSERT_TRUE(complete(record, parts));
  ASSERT_TRUE(late->append(as_bytes(std::string(kPart - 1000, 'l'))));
  const auto refused = store(record, 3, "l", std::move(late));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNotFound);
  EXPECT_TRUE(object() == a + b);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(UploadsTest, ARefusedCompletionLeavesTheUploadAsItWas) {
  const UploadRecord record = start();
  const std::string a = bytes_of(kPart, 1);
  const std::string b = bytes_of(kPart, 2);
  const CompletedPart one = upload(record, 1, a);
  const CompletedPart two = upload(record, 2, b);
  const CompletedPart three = upload(record, 3, "three");
  EXPECT_FALSE(complete(record, {one, two, three}, {.if_match = "other"}));
  EXPECT_FALSE(complete(record, {one, three, two}));
  EXPECT_EQ(upload(record, 4, bytes_of(kPart, 4)).number, 4U) << "it takes parts again";
  // Without 2 the others do not lie where they must: they are copied, and 2 stays whole meanwhile.
  EXPECT_FALSE(complete(record, {one, three}, {.if_match = "other"}));
  ASSERT_TRUE(complete(record, {one, two}));
  EXPECT_TRUE(object() == a + b);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(UploadsTest, AnAbortedUploadLeavesNothingAlsoWithPartsOnTheirWay) {
  const UploadRecord record = start();
  upload(record, 1, bytes_of(kPart, 1));
  upload(record, 2, bytes_of(1000, 2));
  auto late = begin(record, 3, bytes_of(kPart, 3));
  ASSERT_TRUE(store_->abort_upload("bucket", "key", record.id));
  late.reset();
  EXPECT_TRUE(files().empty());
  const UploadRecord other = start();
  upload(other, 1, bytes_of(kPart, 1));
  ASSERT_TRUE(store_->delete_bucket("bucket"));
  EXPECT_TRUE(files().empty());
  reopen();
  EXPECT_TRUE(files().empty());
}

TEST_F(UploadsTest, OfTwoCompletionsAtOnceBothGetTheSameAnswer) {
  const UploadRecord record = start();
  const std::vector<CompletedPart> parts = {upload(record, 1, bytes_of(kPart, 1)),
                                            upload(record, 2, bytes_of(kPart, 2))};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto done = complete(record, parts);
      EXPECT_TRUE(done) << done.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(object() == bytes_of(kPart, 1) + bytes_of(kPart, 2));
  EXPECT_EQ(files().size(), 1U);
}

// The model: what the parts that were last acknowledged make up, after any sequence of operations,
// restarts and refusals.
TEST_F(UploadsTest, BehaveAsAMapOfPartsUnderRandomOperations) {
  constexpr std::uint64_t kSeed = 20261130;
  for (std::uint64_t round = 0; round < 12; ++round) {
    const UploadRecord record = start();
    std::map<unsigned, std::pair<CompletedPart, std::string>> model;
    std::map<unsigned, std::unique_ptr<PendingBody>> on_their_way;
    for (std::uint64_t step = 0; step < 12; ++step) {
      const auto draw = [&](std::uint64_t stream, std::uint64_t below) {
        return rng(kSeed + round, stream, step) % below;
      };
      const unsigned number = 1 + static_cast<unsigned>(draw(1, 4));
      const std::size_t sizes[] = {kPart, kPart, kPart, kPart + 12'345};
      const std::string bytes = bytes_of(sizes[draw(2, 4)], round * 100 + step);
      const std::uint64_t what = draw(3, 10);
      if (what < 7) {
        model[number] = {upload(record, number, bytes), bytes};
      } else if (what == 7) {
        on_their_way[number] = begin(record, number, bytes);
      } else if (what == 8) {
        on_their_way.clear();
      } else {
        on_their_way.clear();
        reopen();
      }
    }
    if (model.empty()) continue;
    std::vector<CompletedPart> parts;
    std::string expected;
    for (const auto& [number, part] : model) {
      parts.push_back(part.first);
      expected += part.second;
    }
    EXPECT_FALSE(complete(record, parts, {.if_match = "other"}));
    ASSERT_TRUE(complete(record, parts));
    on_their_way.clear();
    ASSERT_TRUE(object() == expected) << "round " << round;
    ASSERT_EQ(files().size(), 1U) << "round " << round;
  }
}

TEST_F(UploadsTest, AreListedByPrefixDelimiterAndAge) {
  for (const char* key : {"a", "b/1", "b/2", "c"}) {
    ASSERT_TRUE(store_->create_upload({.bucket = "bucket", .key = key}));
  }
  const auto page = store_->list_uploads({.bucket = "bucket", .delimiter = "/", .limit = 2});
  ASSERT_TRUE(page);
  EXPECT_EQ(page->uploads.size(), 1U);
  EXPECT_EQ(page->common_prefixes, std::vector<std::string>{"b/"});
  EXPECT_TRUE(page->truncated);
  const auto rest = store_->list_uploads({.bucket = "bucket",
                                          .delimiter = "/",
                                          .after_key = page->last_key,
                                          .after_id = page->last_id});
  ASSERT_EQ(rest->uploads.size(), 1U);
  EXPECT_EQ(rest->uploads.front().key, "c");
  EXPECT_TRUE(
      store_->list_uploads({.bucket = "bucket", .created_before = Time{}})->uploads.empty());
}

}  // namespace
}  // namespace atelier::objects
