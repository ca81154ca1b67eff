// Which form of a data set a job's channels have, by their files and by what inputdataconfig.json
// says of them.
#include "vision/training_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "vision/record_io_test.h"

namespace atelier::vision {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class ChannelFormsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* channel : {"train", "validation"}) {
      for (const char* name : {"/cat/1.jpg", "/cat/2.jpg", "/dog/1.jpg", "/dog/2.jpg"}) {
        put(channel + std::string(name), "picture");
      }
    }
  }
  void put(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = folders_.root / "input" / "data" / name;
    ASSERT_TRUE(make_folders(path.parent_path()));
    ASSERT_TRUE(write_file_durably(path, bytes));
  }
  void config(const std::string& text) {
    ASSERT_TRUE(make_folders(folders_.config("")));
    ASSERT_TRUE(write_file_durably(folders_.config("inputdataconfig.json"), text));
  }
  Result<TrainingData> open(const Hyperparameters& h = {}) {
    return open_training_data(folders_, h);
  }
  std::string refusal(const Hyperparameters& h = {}) {
    const Result<TrainingData> data = open(h);
    return data ? "accepted" : data.error().message;
  }

  TempFolder temp_ = *TempFolder::create();
  JobFolders folders_{temp_.path()};
  std::string list_ = "1\t1\tcat/1.jpg\n2\t0\tdog/2.jpg\n";
};

TEST_F(ChannelFormsTest, AListIsReadWhereItsChannelIs) {
  EXPECT_THAT(open()->train.classes, ElementsAre("cat", "dog"));
  put("train_lst/a.lst", list_);
  EXPECT_EQ(refusal(),
            "channel 'validation': there is no channel 'validation_lst'; the training pictures "
            "have a list, so these must have one as well");
  put("validation_lst/b.lst", list_);
  const Result<TrainingData> data = open();
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_THAT(data->train.classes, ElementsAre("0", "1"));
  EXPECT_EQ(data->train.samples[0].path, "cat/1.jpg");
  EXPECT_EQ(data->validation->samples.size(), 2U);
  put("train_lst/second.lst", list_);
  EXPECT_EQ(refusal(), "channel 'train': channel 'train_lst' holds 2 .lst files; it must hold one");
}

TEST_F(ChannelFormsTest, RecordsAreReadByTheirTypeOrWhenTheyAreThere) {
  put("train/a.rec", record_of({0}, "x") + record_of({1}, "y"));
  put("train_lst/a.lst", "1\t0\tcat/1.jpg\n2\t1\tcat/2.jpg\n3\t1\tdog/1.jpg\n");
  put("validation/a.rec", record_of({0}, "x") + record_of({1}, "y"));
  put("validation_lst/a.lst", list_);
  EXPECT_EQ(open()->train.samples.size(), 2U);
  config(R"({"train":{"ContentType":"application/x-image"}})");
  EXPECT_EQ(open()->train.samples.size(), 3U);
  ASSERT_TRUE(remove_tree(folders_.root / "input/data/train/a.rec"));
  config(R"({"train":{"ContentType":"Application/X-RecordIO; charset=binary"}})");
  EXPECT_EQ(refusal(), "channel 'train': it holds no .rec file");
  config(R"({"train":{"ContentType":"text/csv"}})");
  EXPECT_THAT(refusal(), HasSubstr("channel 'train': ContentType 'text/csv'; it must be one of "
                                   "application/x-recordio, application/x-image"));
}

TEST_F(ChannelFormsTest, AnAugmentedManifestLiesBesideItsFolderAndItsAttributesSayWhatIsWhat) {
  put("train/set/one.jpg", "picture");
  put("train-manifest",
      R"({"id":7,"image-ref":"s3://b/cat/1.jpg","kind":"1","id-metadata":{}}
{"id":8,"image-ref":"s3://b/set/one.jpg","kind":"0"}
)");
  put("validation-manifest", R"({"image-ref":"s3://b/dog/1.jpg","kind":1})");
  config(R"({"train":{"ContentType":"application/x-recordio","AttributeNames":["image-ref","kind"]},
             "validation":{"AttributeNames":["image-ref","kind"]}})");
  const Result<TrainingData> data = open();
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->train.samples[1].path, "set/one.jpg");
  EXPECT_THAT(data->train.class_counts, ElementsAre(1, 1));
  EXPECT_EQ(data->validation->samples.size(), 1U);
  Hyperparameters h;
  h.label_attribute = "id";
  EXPECT_THAT(refusal(h), HasSubstr("labels go up to 8, but none is 0"));
  // The manifest of a ManifestFile channel lies there as well, and is none of these.
  config("{}");
  EXPECT_THAT(open()->train.classes, ElementsAre("cat", "dog", "set"));
}

TEST_F(ChannelFormsTest, SeveralLabelsAreReadAsTheContentTypeSays) {
  Hyperparameters h;
  h.multi_label = true;
  EXPECT_THAT(refusal(h), HasSubstr("with multi_label=1 labels come from a channel 'train_lst', a "
                                    "manifest or RecordIO; class folders give one label each"));
  put("train/a.manifest", R"({"source-ref":"cat/1.jpg","tags":[2,0]}
{"source-ref":"cat/2.jpg","tags":"[1]"}
)");
  put("validation/a.manifest", R"({"source-ref":"cat/1.jpg","tags":[1,0,1]})");
  config(R"({"train":{"ContentType":"application/jsonlines;label-format=class-id"}})");
  const Result<TrainingData> data = open(h);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_THAT(data->train.label_sets, ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  EXPECT_THAT(data->validation->label_sets, ElementsAre(ElementsAre(0, 2)));
  EXPECT_THAT(data->trained_counts(), ElementsAre(1, 1, 1));
  config(R"({"train":{"ContentType":"application/jsonlines;label-format=one-hot"}})");
  EXPECT_EQ(refusal(h),
            "channel 'train': ContentType has label-format=one-hot; it must be "
            "multi-hot or class-id");
  put("train/b.manifest", "{}");
  config("{}");
  EXPECT_EQ(refusal(h), "channel 'train': it holds 2 .manifest files; it must hold one");
}

TEST_F(ChannelFormsTest, CountsThatAreWrongAreRefusedOrWarnedOf) {
  put("train_lst/a.lst", list_);
  put("validation_lst/a.lst", "1\t0\tcat/1.jpg\n2\t2\tcat/2.jpg\n");
  EXPECT_EQ(refusal(),
            "channel 'validation': 'a.lst': line 2: label 2; with 2 classes labels go "
            "from 0 to 1");
  put("validation_lst/a.lst", list_);
  Hyperparameters h;
  h.num_classes = 3;
  h.num_training_samples = 99;
  const Result<TrainingData> data = open(h);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->train.classes.size(), 3U);
  EXPECT_THAT(data->warnings,
              Contains("num_training_samples is 99; there are 2, and that is used"));
  EXPECT_THAT(data->warnings, Contains("class '2' has no pictures"));
}

}  // namespace
}  // namespace atelier::vision
