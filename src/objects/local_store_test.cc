#include "objects/local_store.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "base/id.h"
#include "base/rng.h"

namespace atelier::objects {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<char>(rng(seed, 1, i / 8) >> (i % 8));
  return bytes;
}

std::string read_body(const Body& body, std::uint64_t size) {
  if (!body.file) return body.bytes;
  std::string bytes(size, '\0');
  EXPECT_EQ(pread(body.file.get(), bytes.data(), size, 0), static_cast<ssize_t>(size));
  return bytes;
}

std::unique_ptr<LocalStore> open_store(const fs::path& folder) {
  Result<std::unique_ptr<LocalStore>> store = LocalStore::open(folder, system_clock());
  EXPECT_TRUE(store) << store.error().message;
  return *std::move(store);
}

Result<ObjectRecord> put(LocalStore& store, const std::string& key, std::string_view bytes,
                         Conditions conditions = {}) {
  std::unique_ptr<PendingBody> body = store.start_body();
  TRY(body->append(std::as_bytes(std::span{bytes.data(), bytes.size()})));
  NewObject object{.bucket = "bucket", .key = key, .etag = to_hex(digest(Digest::kMd5, bytes))};
  object.conditions = std::move(conditions);
  return store.put(object, std::move(body));
}

Result<std::string> get(LocalStore& store, const std::string& key) {
  const auto [record, body] = TRY(store.get("bucket", key));
  return read_body(body, record.size);
}

std::size_t files_in(const fs::path& folder) {
  std::size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    count += entry.is_regular_file();
  return count;
}

std::vector<std::string> list_all(LocalStore& store, const std::string& prefix,
                                  const std::string& delimiter, std::size_t limit) {
  std::vector<std::string> names;
  ListQuery query{.bucket = "bucket", .prefix = prefix, .delimiter = delimiter};
  query.limit = limit;
  while (true) {
    const Result<ListResult> page = store.list(query);
    EXPECT_TRUE(page);
    for (const ObjectRecord& object : page->objects) names.push_back(object.key);
    for (const std::string& common : page->common_prefixes) names.push_back(common + "*");
    EXPECT_LE(page->objects.size() + page->common_prefixes.size(), limit);
    if (!page->truncated) return names;
    query.from = page->next_from;
  }
}

class LocalStoreTest : public testing::Test {
 protected:
  LocalStoreTest() { EXPECT_TRUE(store_->create_bucket("bucket", "")); }
  TempFolder folder_ = *TempFolder::create();
  std::unique_ptr<LocalStore> store_ = open_store(folder_.path());
};

TEST_F(LocalStoreTest, GivesBackWhatWasPutWhateverItsSize) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kInlineBytes - 1, kInlineBytes,
                                 kInlineBytes + 1, std::size_t{3} << 20}) {
    const std::string bytes = bytes_of(size, size);
    ASSERT_TRUE(put(*store_, "key", bytes));
    const Result<std::string> got = get(*store_, "key");
    ASSERT_TRUE(got);
    EXPECT_EQ(*got == bytes, true) << size << " bytes";
  }
  EXPECT_EQ(files_in(folder_.path() / "bodies"), 1U) << "replaced bodies are removed";
}

TEST_F(LocalStoreTest, KeepsEverythingAcrossAnOrderlyRestart) {
  const std::string large = bytes_of(kInlineBytes * 2, 1);
  ASSERT_TRUE(put(*store_, "small", "1"));
  ASSERT_TRUE(put(*store_, "large", large));
  store_.reset();
  store_ = open_store(folder_.path());
  EXPECT_EQ(*get(*store_, "small"), "1");
  EXPECT_EQ(*get(*store_, "large") == large, true);
}

TEST_F(LocalStoreTest, RemovesNothingThatItDidNotMake) {
  const std::string large = bytes_of(kInlineBytes * 2, 1);
  ASSERT_TRUE(put(*store_, "large", large));
  store_.reset();
  const fs::path bodies = folder_.path() / "bodies";
  std::ofstream{bodies / "00000000" / "precious"} << "mine";
  fs::create_directories(folder_.path() / "victim");
  std::ofstream{folder_.path() / "victim" / random_id()} << "mine";
  store_ = open_store(folder_.path());
  EXPECT_TRUE(fs::exists(bodies / "00000000" / "precious"));
  store_.reset();
  for (const char* place : {"bodies/00000001", "bodies"}) {
    const fs::path link = folder_.path() / place;
    if (fs::exists(link)) fs::rename(link, folder_.path() / "moved");
    fs::create_directory_symlink(folder_.path() / "victim", link);
    const auto refused = LocalStore::open(folder_.path(), system_clock());
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("'" + link.string() + "' is a link"), std::string::npos)
        << refused.error().message;
    fs::remove(link);
  }
  EXPECT_EQ(files_in(folder_.path() / "victim"), 1U);
  fs::rename(folder_.path() / "moved", bodies);
  store_ = open_store(folder_.path());
  EXPECT_EQ(*get(*store_, "large") == large, true);
}

TEST_F(LocalStoreTest, BodiesWithoutAnIndexAreRefusedByNameAndKept) {
  const std::string large = bytes_of(kInlineBytes * 2, 1);
  ASSERT_TRUE(put(*store_, "large", large));
  store_.reset();
  const fs::path index = folder_.path() / "index.db";
  const fs::path saved = folder_.path() / "saved.db";
  for (const bool empty : {false, true}) {
    fs::rename(index, saved);
    if (empty) std::ofstream{index};
    for (int start = 0; start < 2; ++start) {
      const auto refused = LocalStore::open(folder_.path(), system_clock());
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
      EXPECT_NE(refused.error().message.find(empty ? "'index.db' is empty" : "is missing"),
                std::string::npos)
          << refused.error().message;
    }
    fs::rename(saved, index);
    store_ = open_store(folder_.path());
    EXPECT_EQ(*get(*store_, "large") == large, true);
    store_.reset();
  }
  fs::remove(index);
  fs::rename(folder_.path() / "bodies", folder_.path() / "moved");
  EXPECT_TRUE(open_store(folder_.path())->list_buckets()->empty());
}

TEST_F(LocalStoreTest, WhatAnOlderIndexDoesNotKnowIsMovedAsideAndCanBeBroughtBack) {
  const std::string large = bytes_of(kInlineBytes * 2, 1);
  const fs::path index = folder_.path() / "index.db";
  ASSERT_TRUE(put(*store_, "old", large));
  store_.reset();
  fs::copy_file(index, folder_.path() / "older.db");
  store_ = open_store(folder_.path());
  for (const char* key : {"one", "two"}) ASSERT_TRUE(put(*store_, key, large));
  store_.reset();
  fs::rename(index, folder_.path() / "newer.db");
  fs::rename(folder_.path() / "older.db", index);
  store_ = open_store(folder_.path());
  EXPECT_EQ(*get(*store_, "old") == large, true);
  EXPECT_FALSE(get(*store_, "one"));
  EXPECT_EQ(files_in(folder_.path() / "bodies"), 1U);
  ASSERT_EQ(files_in(folder_.path() / "aside"), 2U);
  store_.reset();
  fs::rename(folder_.path() / "newer.db", index);
  for (const auto& body : fs::directory_iterator(folder_.path() / "aside" / "00000000")) {
    fs::rename(body.path(), folder_.path() / "bodies" / "00000000" / body.path().filename());
  }
  store_ = open_store(folder_.path());
  for (const char* key : {"old", "one", "two"}) EXPECT_EQ(*get(*store_, key) == large, true) << key;
}

TEST_F(LocalStoreTest, AfterAStopThatWasCutShortOnlyWhatItExplainsIsRemoved) {
  const auto start_with = [&](const std::vector<int>& minutes_ago) {
    store_.reset();
    std::ofstream{folder_.path() / "lock"} << "open";
    for (const int minutes : minutes_ago) {
      const fs::path body = folder_.path() / "bodies" / "00000000" / random_id();
      std::ofstream{body} << "half of";
      fs::last_write_time(body, fs::file_time_type::clock::now() - std::chrono::minutes{minutes});
    }
    store_ = open_store(folder_.path());
    EXPECT_EQ(files_in(folder_.path() / "bodies"), 0U);
    const fs::path aside = folder_.path() / "aside";
    return fs::exists(aside) ? files_in(aside) : 0U;
  };
  EXPECT_EQ(start_with({600, 601, 602}), 0U) << "of one moment, however long ago";
  EXPECT_EQ(start_with({0, 30}), 2U) << "written half an hour apart";
  EXPECT_EQ(start_with(std::vector<int>(1001, 0)), 1003U) << "more than can be on their way";
}

TEST_F(LocalStoreTest, RefusesASecondOpenerByTheNameOfTheFolder) {
  const Result<std::unique_ptr<LocalStore>> second =
      LocalStore::open(folder_.path(), system_clock());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kFailedPrecondition);
  EXPECT_NE(second.error().message.find(folder_.path().string()), std::string::npos)
      << second.error().message;
}

TEST_F(LocalStoreTest, LeavesNothingOfABodyThatIsDropped) {
  {
    const std::unique_ptr<PendingBody> body = store_->start_body();
    const std::string bytes(kInlineBytes * 3, 'x');
    ASSERT_TRUE(body->append(std::as_bytes(std::span{bytes.data(), bytes.size()})));
    EXPECT_EQ(files_in(folder_.path() / "bodies"), 1U);
  }
  EXPECT_EQ(files_in(folder_.path() / "bodies"), 0U);
}

TEST_F(LocalStoreTest, AnOpenBodyStaysReadableWhenItsObjectIsReplaced) {
  const std::string before = bytes_of(kInlineBytes * 2, 5);
  ASSERT_TRUE(put(*store_, "key", before));
  const auto open = store_->get("bucket", "key");
  ASSERT_TRUE(open);
  ASSERT_TRUE(put(*store_, "key", "new"));
  EXPECT_EQ(read_body(open->second, before.size()) == before, true);
  EXPECT_EQ(*get(*store_, "key"), "new");
}

TEST_F(LocalStoreTest, OnlyOneOfManyCreatorsWins) {
  std::atomic<int> won = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      const auto result = put(*store_, "key", std::to_string(i), {.if_none_match = true});
      if (result) {
        ++won;
      } else {
        EXPECT_TRUE(result.error().message.starts_with("PreconditionFailed: "))
            << result.error().message;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
}

TEST_F(LocalStoreTest, ACopySharesNothingWithItsSource) {
  const std::string bytes = bytes_of(kInlineBytes * 2, 7);
  const Result<ObjectRecord> source = put(*store_, "source", bytes);
  ASSERT_TRUE(source);
  ASSERT_TRUE(store_->copy({.bucket = "bucket", .key = "copy", .etag = source->etag}, "bucket",
                           "source", source->etag));
  ASSERT_TRUE(store_->remove("bucket", "source"));
  EXPECT_EQ(*get(*store_, "copy") == bytes, true);
  EXPECT_EQ(files_in(folder_.path() / "bodies"), 1U);
}

TEST_F(LocalStoreTest, ListsUnderADelimiterPageByPage) {
  for (const char* key : {"a", "b/1", "b/2", "b/c/3", "b0", "c//", "c/d", "\xFF\xFFx", "\xFFy"}) {
    ASSERT_TRUE(put(*store_, key, key));
  }
  for (const std::size_t limit : {1U, 2U, 3U, 1000U}) {
    EXPECT_EQ(list_all(*store_, "", "/", limit).size(), 6U);
    EXPECT_EQ(list_all(*store_, "b/", "/", limit).size(), 3U);
    EXPECT_EQ(list_all(*store_, "b/", "", limit),
              (std::vector<std::string>{"b/1", "b/2", "b/c/3"}));
    EXPECT_EQ(list_all(*store_, "", "\xFF", limit).size(), 8U);
  }
  EXPECT_TRUE(list_all(*store_, "nothing", "/", 10).empty());
}

TEST_F(LocalStoreTest, ABucketWithObjectsIsNotDeleted) {
  ASSERT_TRUE(put(*store_, "key", "x"));
  const Result<void> refused = store_->delete_bucket("bucket");
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.starts_with("BucketNotEmpty: "));
  ASSERT_TRUE(store_->remove("bucket", "key"));
  EXPECT_TRUE(store_->delete_bucket("bucket"));
  EXPECT_FALSE(store_->find_bucket("bucket"));
}

PartRecord upload(LocalStore& store, const UploadRecord& to, unsigned number,
                  std::string_view bytes) {
  auto body = store.start_body();
  EXPECT_TRUE(body->append(std::as_bytes(std::span{bytes.data(), bytes.size()})));
  PartRecord part{.number = number, .size = 0, .etag = to_hex(digest(Digest::kMd5, bytes))};
  Result<PartRecord> stored = store.put_part(to, part, std::move(body));
  EXPECT_TRUE(stored);
  return *stored;
}

TEST_F(LocalStoreTest, JoinsPartsAndAnswersACompletionAgain) {
  UploadRecord record{.bucket = "bucket", .key = "key"};
  record.id = *store_->create_upload(record);
  const std::string first = bytes_of(kMinPartBytes, 1);
  upload(*store_, record, 2, "replaced");
  const PartRecord one = upload(*store_, record, 1, first);
  const PartRecord two = upload(*store_, record, 2, "the end");
  CompleteUpload request{
      .bucket = "bucket", .key = "key", .id = record.id, .parts = {{1, one.etag}, {2, two.etag}}};
  const Result<ObjectRecord> done = store_->complete_upload(request);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(done->etag.ends_with("-2"));
  EXPECT_EQ(*get(*store_, "key") == first + "the end", true);
  const Result<ObjectRecord> again = store_->complete_upload(request);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->etag, done->etag);
  EXPECT_FALSE(store_->find_upload("bucket", "key", record.id));
  EXPECT_EQ(files_in(folder_.path() / "bodies"), 1U) << "the parts' files are gone";
}

TEST_F(LocalStoreTest, RefusesACompletionThatDoesNotFitTheParts) {
  UploadRecord record{.bucket = "bucket", .key = "key"};
  record.id = *store_->create_upload(record);
  const PartRecord one = upload(*store_, record, 1, "too small");
  const PartRecord two = upload(*store_, record, 2, "last");
  const auto code_of = [&](std::vector<CompletedPart> parts) {
    const auto result = store_->complete_upload(
        {.bucket = "bucket", .key = "key", .id = record.id, .parts = std::move(parts)});
    EXPECT_FALSE(result);
    return result.error().message.substr(0, result.error().message.find(':'));
  };
  EXPECT_EQ(code_of({{1, one.etag}, {2, two.etag}}), "EntityTooSmall");
  EXPECT_EQ(code_of({{2, two.etag}, {1, one.etag}}), "InvalidPartOrder");
  EXPECT_EQ(code_of({{1, two.etag}}), "InvalidPart");
  EXPECT_EQ(code_of({{3, two.etag}}), "InvalidPart");
  EXPECT_TRUE(store_->abort_upload("bucket", "key", record.id));
  EXPECT_EQ(code_of({{1, one.etag}}), "NoSuchUpload");
}

// In a mount namespace of its own, on a file system of 2 MiB.
void fill_a_small_disk(const fs::path& mount_point) {
  const std::unique_ptr<LocalStore> store = open_store(mount_point);
  ASSERT_TRUE(store->create_bucket("bucket", ""));
  ASSERT_TRUE(put(*store, "before", "kept"));
  constexpr int kFiles = 10;
  for (int i = 0; i < kFiles; ++i) {
    ASSERT_TRUE(put(*store, "file" + std::to_string(i), std::string(kInlineBytes * 4, 'f')));
  }
  const auto large = put(*store, "large", std::string(20 << 20, 'l'));
  EXPECT_TRUE(!large && large.error().code == Code::kResourceExhausted) << large.error().message;
  Result<ObjectRecord> small = Error{};
  int written = 0;
  do {
    small = put(*store, "small" + std::to_string(written), std::string(kInlineBytes, 's'));
  } while (small && ++written < 1000);
  EXPECT_TRUE(!small && small.error().code == Code::kResourceExhausted) << small.error().message;
  EXPECT_GT(written, 2);
  EXPECT_EQ(*get(*store, "before"), "kept");
  EXPECT_EQ(get(*store, "small0")->size(), kInlineBytes);
  EXPECT_FALSE(get(*store, "small" + std::to_string(written)));
  EXPECT_FALSE(get(*store, "large"));
  EXPECT_EQ(files_in(mount_point / "bodies"), std::size_t{kFiles});
  // Who has filled it to the last byte can make room by removing.
  std::ofstream rest{mount_point / "rest"};
  while (rest.write("0", 1).flush()) {
  }
  EXPECT_FALSE(put(*store, "small", std::string(kInlineBytes, 's')));
  for (int i = 0; i < kFiles; ++i) {
    const auto removed = store->remove("bucket", "file" + std::to_string(i));
    EXPECT_TRUE(removed) << removed.error().message;
  }
  const auto small_again = put(*store, "small", std::string(kInlineBytes, 's'));
  EXPECT_TRUE(small_again) << small_again.error().message;
  // Room again: the store goes on.
  ASSERT_EQ(mount("tmpfs", mount_point.c_str(), "tmpfs", MS_REMOUNT, "size=40m"), 0);
  const auto after = put(*store, "after", std::string(1 << 20, 'a'));
  EXPECT_TRUE(after) << after.error().message;
}

// As before, with objects that are all in the index.
void fill_a_small_disk_with_small_objects(const fs::path& mount_point) {
  const std::unique_ptr<LocalStore> store = open_store(mount_point);
  ASSERT_TRUE(store->create_bucket("bucket", ""));
  int written = 0;
  while (put(*store, "small" + std::to_string(written), bytes_of(kInlineBytes, 1))) ++written;
  ASSERT_GT(written, 20);
  std::ofstream rest{mount_point / "rest"};
  while (rest.write("0", 1).flush()) {
  }
  for (int i = 0; i < written; ++i) {
    const auto removed = store->remove("bucket", "small" + std::to_string(i));
    EXPECT_TRUE(removed) << removed.error().message;
  }
  const auto large = put(*store, "large", std::string(4 << 20, 'l'));
  EXPECT_TRUE(large) << "what small objects leave is room for files: " << large.error().message;
}

void on_a_small_disk(void (*what)(const fs::path&)) {
  const TempFolder folder = *TempFolder::create();
  constexpr int kNoNamespace = 77;
  const pid_t child = fork();
  if (child == 0) {
    const bool ready = unshare(CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) == 0 &&
                       mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=20m") == 0;
    if (!ready) _exit(kNoNamespace);
    what(folder.path());
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespace) {
    GTEST_SKIP() << "this machine lets us mount no file system of our own";
  }
  EXPECT_EQ(status, 0);
}

TEST(LocalStoreDisk, WhenFullIsAClearErrorThatLeavesTheStoreWholeAndRemovingMakesRoom) {
  on_a_small_disk(fill_a_small_disk);
}

TEST(LocalStoreDisk, WhenFullOfSmallObjectsGivesTheirRoomBack) {
  on_a_small_disk(fill_a_small_disk_with_small_objects);
}

// The model: what a map would hold, after any sequence of operations and restarts.
TEST(LocalStoreModel, BehavesAsAMapUnderRandomOperationsAndRestarts) {
  const std::uint64_t seed = 20261130;
  const TempFolder folder = *TempFolder::create();
  std::unique_ptr<LocalStore> store = open_store(folder.path());
  ASSERT_TRUE(store->create_bucket("bucket", ""));
  std::map<std::string, std::string> model;
  const char alphabet[] = {'a', '/', '.', '\x01', '\xFF', '%'};
  for (std::uint64_t step = 0; step < 3000; ++step) {
    const auto draw = [&](std::uint64_t stream, std::uint64_t below) {
      return rng(seed, stream, step) % below;
    };
    std::string key;
    for (std::uint64_t i = 0; i <= draw(2, 4); ++i)
      key.push_back(alphabet[rng(seed, 3 + i, step) % sizeof alphabet]);
    const std::uint64_t what = draw(0, 100);
    if (what < 45) {
      const std::size_t sizes[] = {0, 10, 1000, kInlineBytes, kInlineBytes + 1, 200'000};
      const std::string bytes = bytes_of(sizes[draw(1, 6)], step);
      const bool only_new = draw(9, 4) == 0;
      const auto result = put(*store, key, bytes, {.if_none_match = only_new});
      ASSERT_EQ(result.has_value(), !(only_new && model.contains(key)));
      if (result) model[key] = bytes;
    } else if (what < 60) {
      ASSERT_TRUE(store->remove("bucket", key));
      model.erase(key);
    } else if (what < 75) {
      const auto got = get(*store, key);
      ASSERT_EQ(got.has_value(), model.contains(key));
      ASSERT_TRUE(!got || *got == model[key]);
    } else if (what < 85 && model.contains(key)) {
      const std::string target = key + "c";
      const auto source = store->head("bucket", key);
      ASSERT_TRUE(source);
      ASSERT_TRUE(store->copy({.bucket = "bucket", .key = target, .etag = source->etag}, "bucket",
                              key, source->etag));
      model[target] = model[key];
    } else if (what < 98) {
      std::vector<std::string> expected;
      const std::string prefix = key.substr(0, 1);
      for (const auto& [name, bytes] : model) {
        if (name.starts_with(prefix)) expected.push_back(name);
      }
      ASSERT_EQ(list_all(*store, prefix, "", 1 + draw(8, 7)), expected);
    } else {
      store.reset();
      store = open_store(folder.path());
    }
  }
  std::size_t large = 0;
  for (const auto& [name, bytes] : model) {
    ASSERT_EQ(*get(*store, name) == bytes, true);
    large += bytes.size() > kInlineBytes;
  }
  EXPECT_EQ(files_in(folder.path() / "bodies"), large);
}

}  // namespace
}  // namespace atelier::objects
