#include "channels/file_channel.h"

#include "channels/find_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>

#include "base/file.h"
#include "objects/testing.h"

namespace atelier::channels {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FileChannelTest : public testing::Test {
 protected:
  FileChannelTest() { store_->create_bucket("data").value(); }
  void put(const std::vector<std::string>& keys) {
    for (const std::string& key : keys) store_->put("data", key, "bytes of " + key, {}).value();
  }
  // The files of the folder after filling it, sorted; or the message of the refusal.
  std::vector<std::string> fill(const std::string& uri) {
    fs::remove_all(target_);
    const auto report = fill_file_channel(*store_, uri, target_, {});
    if (!report) return {report.error().message};
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(target_)) {
      const std::string name = fs::relative(entry.path(), target_).string();
      names.push_back(entry.is_directory() ? name + "/" : name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string refusal(const std::string& key) {
    store_->put("data", key, "x", {}).value();
    fs::remove_all(target_);
    const auto report = fill_file_channel(*store_, "s3://data/bad/", target_, {});
    EXPECT_FALSE(report) << key;
    EXPECT_FALSE(fs::exists(target_)) << "refused before the first download";
    store_->remove("data", key).value();
    return report ? "" : report.error().message;
  }

  TempFolder folder_ = TempFolder::create().value();
  fs::path target_ = folder_.path() / "channel";
  objects::testing::EmbeddedS3 s3_{folder_.path() / "s3"};
  std::unique_ptr<objects::ObjectStore> store_ = objects::make_s3_client(s3_.endpoint());
};

TEST_F(FileChannelTest, APrefixIsTakenRawAndItsFolderIsCutOff) {
  put({"d/train/a/1", "d/train/2", "d/train2/3", "d/training", "d/other"});
  using V = std::vector<std::string>;
  EXPECT_EQ(fill("s3://data/d/train"), (V{"2", "a/", "a/1", "train2/", "train2/3", "training"}));
  EXPECT_EQ(fill("s3://data/d/train/"), (V{"2", "a/", "a/1"}));
  EXPECT_EQ(fill("s3://data/d/train/a/1"), (V{"1"}));
  EXPECT_EQ(fill("s3://data/d/tr"),
            (V{"train/", "train/2", "train/a/", "train/a/1", "train2/", "train2/3", "training"}));
  EXPECT_EQ(read_file(target_ / "train/a/1").value(), "bytes of d/train/a/1");
  struct stat info {};
  ASSERT_EQ(stat((target_ / "train/a/1").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0644U);
}

TEST_F(FileChannelTest, AFolderMarkerIsAFolder) {
  put({"d/x/1"});
  store_->put("data", "d/", "", {}).value();
  store_->put("data", "d/empty/", "", {}).value();
  EXPECT_EQ(fill("s3://data/d"), (std::vector<std::string>{"empty/", "x/", "x/1"}));
}

TEST_F(FileChannelTest, AnEmptyPrefixIsNotFound) {
  const auto report = fill_file_channel(*store_, "s3://data/none", target_, {});
  EXPECT_EQ(report.error().code, Code::kNotFound);
  EXPECT_THAT(report.error().message, HasSubstr("s3://data/none"));
}

TEST_F(FileChannelTest, NamesThatLeaveTheFolderAreRefusedBeforeTheFirstDownload) {
  put({"bad/good"});
  EXPECT_THAT(refusal("bad/../../etc/passwd"), HasSubstr("part '.' or '..'"));
  EXPECT_THAT(refusal("bad/./x"), HasSubstr("part '.' or '..'"));
  EXPECT_THAT(refusal("bad//x"), HasSubstr("empty part"));
  EXPECT_THAT(refusal("bad/x/"), HasSubstr("ends with '/'"));
  EXPECT_THAT(refusal("bad/" + std::string(300, 'n')), HasSubstr("at most 255 bytes"));
  EXPECT_THAT(refusal("bad/good/inner"), HasSubstr("needs a folder of that name"));
}

TEST_F(FileChannelTest, TwoKeysThatLandOnOneNameAreRefused) {
  put({"e/t/a", "e/ta"});
  EXPECT_EQ(fill("s3://data/e/t"), (std::vector<std::string>{"a", "ta"}));
  put({"f/t/t2", "f/t2"});
  EXPECT_THAT(fill("s3://data/f/t")[0], HasSubstr("lands on the same name"));
}

TEST_F(FileChannelTest, ManyFilesAreReportedAndCountedByTheByte) {
  std::vector<objects::Upload> items;
  for (int i = 0; i < 2500; ++i) {
    items.push_back({.key = "many/" + std::to_string(i % 7) + "/" + std::to_string(i),
                     .path = {},
                     .bytes = std::to_string(i),
                     .options = {}});
  }
  store_->upload_many("data", std::move(items), {}).value();
  std::atomic<std::uint64_t> most{0};
  const auto report =
      fill_file_channel(*store_, "s3://data/many", target_,
                        [&](std::uint64_t done, std::uint64_t total) {
                          EXPECT_LE(done, total);
                          std::uint64_t seen = most;
                          while (done > seen && !most.compare_exchange_weak(seen, done)) {
                          }
                        })
          .value();
  EXPECT_EQ(report.files, 2500U);
  EXPECT_EQ(report.bytes, 10 + 90 * 2 + 900 * 3 + 1500 * 4U);
  EXPECT_EQ(most, report.bytes);
  EXPECT_EQ(read_file(target_ / "6/2498").value(), "2498");
}

TEST_F(FileChannelTest, AManifestNamesItsObjectsAndWhatIsMissing) {
  put({"m/a/1", "m/a/2", "m/b/3", "m/not-named"});
  store_->put("data", "list", R"([{"prefix":"s3://data/m/"},"b/3","a/1"])", {}).value();
  ChannelSource source;
  source.s3_uri = "s3://data/list";
  source.kind = ChannelSource::Kind::kManifest;
  const auto filled = fill_file_channel(*store_, source, target_, nullptr, {}).value();
  EXPECT_EQ(filled.files, 2U);
  EXPECT_EQ(filled.manifest, R"([{"prefix":"s3://data/m/"},"b/3","a/1"])");
  EXPECT_EQ(read_file(target_ / "b/3").value(), "bytes of m/b/3");
  EXPECT_FALSE(fs::exists(target_ / "not-named"));
  store_->put("data", "list", R"([{"prefix":"s3://data/m"},"/b/3","/b/4","/a/0","/z"])", {})
      .value();
  const auto missing = fill_file_channel(*store_, source, target_, nullptr, {});
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("3 objects"));
  EXPECT_THAT(missing.error().message, HasSubstr("'m/a/0', 'm/b/4', 'm/z'"));
}

TEST_F(FileChannelTest, AnAugmentedManifestBringsItsReferencesUnderTheirKeys) {
  put({"img/1", "img/2"});
  const std::string text =
      "{\"i-ref\":\"s3://data/img/2\",\"c\":1}\n{\"i-ref\":\"s3://data/img/1\",\"c\":0}\n";
  store_->put("data", "lines", text, {}).value();
  ChannelSource source;
  source.s3_uri = "s3://data/lines";
  source.kind = ChannelSource::Kind::kAugmentedManifest;
  source.attribute_names = {"i-ref", "c"};
  EXPECT_EQ(fill_file_channel(*store_, source, target_, nullptr, {})->manifest, text);
  EXPECT_EQ(read_file(target_ / "img/1").value(), "bytes of img/1");
  // The second of two instances.
  fs::remove_all(target_);
  source.sharded = true;
  source.shard = {1, 2};
  EXPECT_EQ(fill_file_channel(*store_, source, target_, nullptr, {})->files, 1U);
  EXPECT_FALSE(fs::exists(target_ / "img/2"));
}

TEST_F(FileChannelTest, ManifestsOfManyObjectsFarApartAndCloseTogetherAreFound) {
  std::vector<objects::Upload> items;
  for (int i = 0; i < 1300; ++i) {
    items.push_back(
        {.key = "n/" + std::to_string(10'000 + i), .path = {}, .bytes = "x", .options = {}});
  }
  store_->upload_many("data", std::move(items), {}).value();
  std::vector<std::string> keys;
  for (int i = 1299; i >= 0; --i) {
    if (i < 300 || i % 250 == 0) keys.push_back("n/" + std::to_string(10'000 + i));
  }
  std::vector<std::string> found;
  const auto objects = find_objects(*store_, "data", keys).value();
  for (const objects::ObjectInfo& object : objects) found.push_back(object.key);
  EXPECT_EQ(found, keys);
}

TEST_F(FileChannelTest, ShardsOfAPrefixAreByKey) {
  put({"s/0", "s/1", "s/2", "s/3", "s/4"});
  ChannelSource source;
  source.s3_uri = "s3://data/s/";
  source.sharded = true;
  source.shard = {1, 2};
  EXPECT_EQ(fill_file_channel(*store_, source, target_, nullptr, {})->files, 2U);
  EXPECT_TRUE(fs::exists(target_ / "1"));
  EXPECT_TRUE(fs::exists(target_ / "3"));
  source.shard = {6, 7};
  fs::remove_all(target_);
  EXPECT_EQ(fill_file_channel(*store_, source, target_, nullptr, {})->files, 0U);
}

TEST_F(FileChannelTest, AStopEndsItBeforeTheNextBatch) {
  put({"d/1"});
  const auto report = fill_file_channel(*store_, "s3://data/d", target_, {}, [] { return true; });
  EXPECT_EQ(report.error().code, Code::kCancelled);
}

}  // namespace
}  // namespace atelier::channels
