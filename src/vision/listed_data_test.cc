#include "vision/listed_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "vision/encode.h"
#include "vision/record_io_test.h"

namespace atelier::vision {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ListedDataTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a/1.jpg", "a/2.jpg", "b/a b\t.png"}) put(name, "picture");
  }
  void put(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = temp_.path() / name;
    ASSERT_TRUE(make_folders(path.parent_path()));
    ASSERT_TRUE(write_file_durably(path, bytes));
  }
  Result<ImageFolder> lst(const std::string& text, const ListOptions& options = {}) {
    put("list.lst", text);
    return open_lst(temp_.path(), temp_.path() / "list.lst", options);
  }
  Result<ImageFolder> manifest(const std::string& text, const ListOptions& options = {}) {
    put("set.manifest", text);
    return open_manifest(temp_.path(), temp_.path() / "set.manifest", options);
  }
  static std::string refusal(const Result<ImageFolder>& folder) {
    return folder ? "accepted" : folder.error().message;
  }

  TempFolder temp_ = *TempFolder::create();
};

TEST_F(ListedDataTest, AListGivesPathsLabelsAndClasses) {
  const auto folder = lst("7\t1\ta/1.jpg\r\n\n8\t0.000000\ta/2.jpg\n");
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_THAT(folder->classes, ElementsAre("0", "1"));
  ASSERT_EQ(folder->samples.size(), 2U);
  EXPECT_EQ(folder->samples[0].path, "a/1.jpg");
  EXPECT_EQ(folder->samples[0].label, 1U);
  EXPECT_EQ(folder->samples[0].bytes, 7U);
  EXPECT_THAT(folder->class_counts, ElementsAre(1, 1));
}

TEST_F(ListedDataTest, AListThatCannotBeRightIsRefusedByItsLine) {
  EXPECT_EQ(refusal(lst("1\t0\ta/1.jpg\n1\t0\ta/2.jpg\n")),
            "'list.lst': line 2: index '1' is there twice");
  EXPECT_EQ(refusal(lst("1\t0\tno.jpg\n")),
            "'list.lst': line 1: there is no picture 'no.jpg' in the channel");
  EXPECT_EQ(refusal(lst("1\t0\ta\n")),
            "'list.lst': line 1: there is no picture 'a' in the channel");
  EXPECT_EQ(refusal(lst("1\t0\ta/../../list.lst\n")),
            "'list.lst': line 1: path 'a/../../list.lst' leads out of the channel");
  EXPECT_EQ(refusal(lst("1\t0\t/etc/passwd\n")),
            "'list.lst': line 1: path '/etc/passwd' is absolute; it must lead from the channel's "
            "folder");
  EXPECT_EQ(
      refusal(lst("1 0 a/1.jpg\n")),
      "'list.lst': line 1: '1 0 a/1.jpg' is not index, class and path with tabs between them");
  EXPECT_THAT(refusal(lst("1\t0\tb/a b\t.png\n")),
              HasSubstr("class 'b/a b' is no number; a path cannot hold a tab"));
  EXPECT_THAT(refusal(lst("1.0\t0\ta/1.jpg\n01\t0\ta/2.jpg\n")),
              HasSubstr("line 2: index '01' is there twice"));
  EXPECT_THAT(refusal(lst(std::string("1\t1\0x\ta/1.jpg\n", 14))), HasSubstr("is no number"));
  EXPECT_THAT(refusal(lst("1\t" + std::string(kMaxLineBytes, '1') + "\ta/1.jpg\n")),
              HasSubstr("line 1: it has 1048586 bytes; the limit is 1048576"));
  EXPECT_THAT(refusal(lst("1\tcat\ta/1.jpg\n")), HasSubstr("class 'cat' is no number"));
  EXPECT_THAT(refusal(lst("1\t-1\ta/1.jpg\n")), HasSubstr("line 1: label -1; it must be"));
  EXPECT_THAT(refusal(lst("1\t0.5\ta/1.jpg\n")), HasSubstr("label 0.5"));
  EXPECT_THAT(refusal(lst("1\t0\t1\ta/1.jpg\n")),
              HasSubstr("it has 2 labels; without multi_label=1"));
  EXPECT_THAT(refusal(lst("1\t0\ta/1.jpg\n2\t2\ta/2.jpg\n")),
              HasSubstr("labels go up to 2, but none is 1"));
  EXPECT_EQ(refusal(lst("1\t1\ta/1.jpg\n2\t2\ta/2.jpg\n", {.num_classes = 2})),
            "'list.lst': line 2: label 2; with 2 classes labels go from 0 to 1 (all of them are "
            "from 1 on: subtract 1)");
  EXPECT_THAT(refusal(lst("\n \n")), HasSubstr("no pictures"));
}

TEST_F(ListedDataTest, SeveralLabelsAPictureAreSets) {
  const auto folder = lst("1\t1\t0\t1\ta/1.jpg\n2\t0\t0\t0\ta/2.jpg\n", {.multi_label = true});
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_TRUE(folder->multi_label);
  EXPECT_EQ(folder->classes.size(), 3U);
  EXPECT_THAT(folder->label_sets[0], ElementsAre(0, 2));
  EXPECT_THAT(folder->label_sets[1], ElementsAre());
  EXPECT_THAT(folder->class_counts, ElementsAre(1, 0, 1));
  EXPECT_THAT(refusal(lst("1\t1\t0\ta/1.jpg\n2\t1\ta/2.jpg\n", {.multi_label = true})),
              HasSubstr("line 2: it has 1 labels; the rows before it have 2"));
  EXPECT_THAT(refusal(lst("1\t1\t3\ta/1.jpg\n", {.multi_label = true})),
              HasSubstr("label 3 of class 1; with several labels a picture each is 0 or 1"));
}

TEST_F(ListedDataTest, NamesMayBeAnythingButTabsAndLineEnds) {
  const std::vector<std::string> names = {"a/with space.jpg",           "a/-flag",
                                          "a/%20#+&;'\".jpg",           "a/\xff\xfe.jpg",
                                          "a/" + std::string(200, 'n'), "./a/1.jpg"};
  std::string list = "\xef\xbb\xbf";  // as some editors begin a file
  for (std::size_t i = 0; i < names.size(); ++i) {
    put(names[i], "picture");
    list += fmt::format("{}\t{}\t{}\n", i, i % 2, names[i]);
  }
  const auto folder = lst(list);
  ASSERT_TRUE(folder) << folder.error().message;
  std::vector<std::byte> buffer;
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(folder->samples[i].path, names[i]);
    EXPECT_TRUE(read_picture(*folder, folder->samples[i], 100, buffer)) << names[i];
  }
}

TEST_F(ListedDataTest, ALinkLeadsOnlyToAPlaceWithin) {
  std::filesystem::create_symlink("1.jpg", temp_.path() / "a/link.jpg");
  std::filesystem::create_symlink("/etc/passwd", temp_.path() / "a/out.jpg");
  std::filesystem::create_directory_symlink("/etc", temp_.path() / "etc");
  EXPECT_TRUE(lst("1\t0\ta/link.jpg\n2\t1\ta/2.jpg\n"));
  EXPECT_THAT(refusal(lst("1\t0\ta/out.jpg\n")), HasSubstr("no picture 'a/out.jpg'"));
  EXPECT_THAT(refusal(lst("1\t0\tetc/passwd\n")), HasSubstr("no picture 'etc/passwd'"));
}

TEST_F(ListedDataTest, PicturesThatAreListedTwiceAreTold) {
  const auto folder = lst("1\t0\ta/1.jpg\n2\t1\ta/2.jpg\n3\t0\ta/1.jpg\n4\t0\ta/2.jpg\n");
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(folder->samples.size(), 4U);
  EXPECT_THAT(folder->warnings,
              ElementsAre("2 rows name a picture that is named before, 1 of them with another "
                          "label; the first: 'a/1.jpg' on line 3"));
}

TEST_F(ListedDataTest, ClassesAreWhatNumClassesSaysAndNotMoreThanTheLimit) {
  const auto folder = lst("1\t0\ta/1.jpg\n2\t1\ta/2.jpg\n", {.num_classes = 40});
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(folder->classes.size(), 40U);
  EXPECT_EQ(folder->warnings.size(), 21U);
  EXPECT_EQ(folder->warnings.back(), "so it is with 18 classes more of the 40");
  EXPECT_EQ(refusal(lst("1\t0\ta/1.jpg\n2\t1\ta/2.jpg\n", {.num_classes = 100'000})),
            "'list.lst': 100000 classes; the limit is 32768");
  EXPECT_EQ(refusal(lst("1\t32768\ta/1.jpg\n")),
            "'list.lst': line 1: label 32768; it must be an integer from 0 to 32767");
  EXPECT_EQ(refusal(lst("1\t1\t0\ta/1.jpg\n", {.multi_label = true, .num_classes = 3})),
            "'list.lst': its rows have 2 labels each; there are 3 classes (num_classes)");
}

TEST_F(ListedDataTest, AManifestFindsItsPicturesBelowTheChannelsPrefix) {
  const auto folder = manifest(
      R"({"source-ref":"s3://bucket/sets/one/a/1.jpg","class":"1","class-metadata":{"class-name":"dog"}}
{"source-ref":"s3://bucket/sets/one/a/2.jpg","class":0,"class-metadata":{"class-name":"cat"}}
{"class":[1],"source-ref":"a/1.jpg"})");
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_THAT(folder->classes, ElementsAre("cat", "dog"));
  EXPECT_EQ(folder->samples[1].path, "a/2.jpg");
  EXPECT_THAT(folder->class_counts, ElementsAre(1, 2));
  // The longest way that is there, whatever the rows before it were.
  put("a/b/1.jpg", "longer");
  const auto longest = manifest(R"({"source-ref":"s3://bucket/x/b/a/1.jpg","class":0}
{"source-ref":"s3://bucket/a/b/1.jpg","class":1})");
  ASSERT_TRUE(longest) << longest.error().message;
  EXPECT_EQ(longest->samples[0].path, "a/1.jpg");
  EXPECT_EQ(longest->samples[1].path, "a/b/1.jpg");
  const auto several = manifest(
      R"({"source-ref":"a/1.jpg","tags":"[1,0,1]"}
{"source-ref":"a/2.jpg","tags":[0,1,0]})",
      {.multi_label = true});
  ASSERT_TRUE(several) << several.error().message;
  EXPECT_THAT(several->label_sets[0], ElementsAre(0, 2));
  const auto by_id = manifest(
      R"({"source-ref":"a/1.jpg","tags":[2,0],"tags-metadata":{"class-map":{"0":"red","2":"blue"}}}
{"source-ref":"a/2.jpg","tags":[1],"tags-metadata":{"class-map":{"1":"green"}}})",
      {.multi_label = true, .label_format = LabelFormat::kClassId});
  ASSERT_TRUE(by_id) << by_id.error().message;
  EXPECT_THAT(by_id->classes, ElementsAre("red", "green", "blue"));
  EXPECT_THAT(by_id->label_sets[0], ElementsAre(0, 2));
}

TEST_F(ListedDataTest, AManifestThatCannotBeRightIsRefusedByItsLine) {
  EXPECT_THAT(refusal(manifest("{\"source-ref\":\"a/1.jpg\",\"class\":0}\n{\"class\":1}")),
              HasSubstr("'set.manifest': line 2: it has no text 'source-ref'"));
  EXPECT_THAT(refusal(manifest("{\"source-ref\"")), HasSubstr("line 1: "));
  EXPECT_THAT(refusal(manifest(R"({"source-ref":"a/1.jpg","x":0,"y":1})")),
              HasSubstr("'label_attribute': 'x' 'y'"));
  EXPECT_THAT(refusal(manifest(R"({"source-ref":"a/1.jpg","x":{}})")), HasSubstr("'x' is {}"));
  EXPECT_THAT(refusal(manifest(R"({"source-ref":"s3://b/no.jpg","x":0})")),
              HasSubstr("line 1: the channel has no file for 's3://b/no.jpg'"));
  EXPECT_THAT(refusal(manifest(R"({"source-ref":"../../etc/passwd","x":0})")),
              HasSubstr("path '../../etc/passwd' leads out of the channel"));
  EXPECT_THAT(refusal(manifest(R"({"source-ref":"s3://b/../../etc/passwd","x":0})")),
              HasSubstr("no file for 's3://b/../../etc/passwd'"));
  EXPECT_THAT(refusal(manifest(R"({"source-ref":"a/1.jpg","x":0}
{"source-ref":"a/2.jpg","y":0})")),
              HasSubstr("line 2: it has no label: no attribute 'x'"));
  EXPECT_THAT(refusal(manifest(R"({"source-ref":"a/1.jpg","x":)" + std::string(2000, '[') +
                               std::string(2000, ']') + "}")),
              HasSubstr("line 1: "));
  EXPECT_THAT(
      refusal(manifest(R"({"source-ref":"a/1.jpg","x":")" + std::string(5000, 'z') + "\"}")),
      HasSubstr("zzz... (5002 bytes); it must be a class number"));
  EXPECT_THAT(refusal(manifest(R"({"source-ref":"a/1.jpg","x":")" +
                               std::string(kMaxLineBytes, 'z') + "\"}")),
              HasSubstr("the limit is 1048576"));
  EXPECT_THAT(
      refusal(manifest(R"({"source-ref":"a/1.jpg","x":0,"x-metadata":{"class-name":"dog"}})",
                       {.classes = {{"cat", "dog"}}})),
      HasSubstr("class 0 is called 'dog' here and 'cat' in the training data"));
  EXPECT_THAT(refusal(manifest(R"({"source-ref":"a/1.jpg","x":0,"x-metadata":{"class-name":"cat"}}
{"source-ref":"a/2.jpg","x":0,"x-metadata":{"class-name":"dog"}})")),
              HasSubstr("line 2: class 0 is called 'dog' here and 'cat' before"));
}

TEST_F(ListedDataTest, AClassMapThatNamesAClassBeyondTheLabelsIsRefusedByItsLine) {
  const auto with_map = [](const std::string& map) {
    return R"({"source-ref":"a/1.jpg","x":0}
{"source-ref":"a/2.jpg","x":1,"x-metadata":{"class-map":)" +
           map + "}}";
  };
  EXPECT_EQ(refusal(manifest(with_map(R"({"0":"a","30000":"y"})"))),
            "'set.manifest': line 2: its metadata calls class 30000 'y', but labels go from 0 to "
            "1; a class without pictures needs num_classes");
  EXPECT_THAT(refusal(manifest(with_map(R"({"1":"cat","2":"dog"})"))),
              HasSubstr("line 2: its metadata calls class 2 'dog', but labels go from 0 to 1"));
  EXPECT_THAT(refusal(manifest(with_map(R"({"0":"a","3":"y"})"), {.num_classes = 3})),
              HasSubstr("calls class 3 'y', but labels go from 0 to 2 (num_classes)"));
  for (const char* number : {"40000", "-1", "99999999999", "cat", ""}) {
    EXPECT_THAT(refusal(manifest(with_map(fmt::format(R"({{"0":"a","{}":"y"}})", number)))),
                HasSubstr(fmt::format(
                    "line 2: 'class-map' names class '{}'; it must be an integer from 0 to 32767",
                    number)));
  }
  const auto announced = manifest(with_map(R"({"0":"a","1":"b","2":"c"})"), {.num_classes = 3});
  ASSERT_TRUE(announced) << announced.error().message;
  EXPECT_THAT(announced->classes, ElementsAre("a", "b", "c"));
}

TEST_F(ListedDataTest, RecordsAreReadLikeFilesAndNamedByTheirOffset) {
  Image image;
  image.width = image.height = 16;
  image.channels = 1;
  image.pixels.assign(256, 100);
  const std::string png = *encode_png(image);
  const std::string damaged = record_of({1}, png.substr(0, 20));
  put("records/train.rec", record_of({0}, png) + damaged + record_of({1}, png));
  const auto folder = open_records(temp_.path() / "records", {});
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_THAT(folder->class_counts, ElementsAre(1, 2));
  LoaderOptions options;
  options.preprocess = {.width = 16, .height = 16, .resize = 16};
  options.threads = 2;
  const auto loader = *BatchLoader::create(*folder, {0, 1, 2}, options);
  const std::optional<Batch> batch = *loader->next();
  EXPECT_THAT(batch->labels, ElementsAre(0, 1));
  EXPECT_EQ(batch->pixels.data()[0], batch->pixels.data()[16 * 16 * 3]);
  ASSERT_EQ(loader->damaged().size(), 1U);
  EXPECT_EQ(loader->damaged()[0].path, fmt::format("train.rec@{}", record_of({0}, png).size()));
  const std::string before = *fingerprint(*folder, true);
  put("records/train.rec", record_of({0}, png) + damaged + record_of({0}, png));
  EXPECT_NE(*fingerprint(*open_records(temp_.path() / "records", {.num_classes = 2}), true),
            before);
  put("records/train.rec", "no records at all");
  EXPECT_THAT(refusal(open_records(temp_.path() / "records", {})),
              HasSubstr("'train.rec': RecordIO at byte 0"));
}

}  // namespace
}  // namespace atelier::vision
