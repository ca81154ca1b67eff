// Trainings on each form of a data set, and from the model of an earlier one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "vision/image_folder.h"
#include "vision/predict_command.h"
#include "vision/record_io_test.h"
#include "vision/training_job_test.h"

namespace atelier::vision {
namespace {

using testing::Contains;
using testing::HasSubstr;

// The same pictures in the same order, as class folders, behind a list, in RecordIO and behind a
// manifest: the same weights.
TEST_F(TrainingTest, EveryFormOfADataSetGivesTheSameWeights) {
  const JobFolders folders = job("folders", kSmall);
  ASSERT_TRUE(train(folders));
  const std::string expected = *read_file(folders.model() / "model.safetensors");
  for (const std::string form : {"lst", "rec", "manifest"}) {
    const JobFolders other{temp_.path() / form};
    for (const std::string channel : {"train", "validation"}) {
      const std::filesystem::path from = folders.root / "input" / "data" / channel;
      const std::filesystem::path to = other.root / "input" / "data" / channel;
      const ImageFolder set = *index_image_folder(from);
      std::string text;
      std::string records;
      for (std::size_t i = 0; i < set.samples.size(); ++i) {
        const Sample& sample = set.samples[i];
        const auto label = static_cast<float>(sample.label);
        text += form == "lst" ? fmt::format("{}\t{}\t{}\n", i, sample.label, sample.path)
                              : fmt::format("{{\"source-ref\":\"s3://b/x/{}\",\"class\":\"{}\"}}\n",
                                            sample.path, sample.label);
        records += record_of({label}, *read_file(from / sample.path));
      }
      ASSERT_TRUE(make_folders(to));
      ASSERT_TRUE(make_folders(to.string() + "_lst"));
      if (form == "rec") {
        ASSERT_TRUE(write_file_durably(to / "data.rec", records));
        continue;
      }
      std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
      const std::filesystem::path list = form == "lst" ? to.string() + "_lst" : to.string();
      ASSERT_TRUE(write_file_durably(list / ("set." + form), text));
      if (form == "manifest") std::filesystem::remove(to.string() + "_lst");
    }
    ASSERT_TRUE(make_folders(other.config("")));
    ASSERT_TRUE(write_file_durably(other.config("hyperparameters.json"), kSmall));
    const Result<void> trained = train(other);
    ASSERT_TRUE(trained) << form << trained.error().message;
    EXPECT_EQ(*read_file(other.model() / "model.safetensors"), expected) << form;
  }
}

TEST_F(TrainingTest, SeveralLabelsAPictureAreLearntAndPredicted) {
  const JobFolders folders = job(
      "job", R"({"use_pretrained_model":"0","epochs":"8","mini_batch_size":"8","image_size":"32",
          "engine":"fused-fp32","threads":"2","optimizer":"adam","learning_rate":"0.003",
          "multi_label":"1","use_weighted_loss":"1"})");
  for (const std::string channel : {"train", "validation"}) {
    const std::filesystem::path root = folders.root / "input" / "data" / channel;
    std::string list;
    const ImageFolder set = *index_image_folder(root);
    for (const Sample& sample : set.samples) {
      // "bright", "striped": light pictures are bright, striped ones both.
      list += fmt::format("{}\t{}\t{}\t{}\n", list.size(), sample.label > 0 ? 1 : 0,
                          sample.label == 2 ? 1 : 0, sample.path);
    }
    ASSERT_TRUE(make_folders(root.string() + "_lst"));
    ASSERT_TRUE(write_file_durably(root.string() + "_lst/a.lst", list));
  }
  const Result<void> trained = train(folders);
  ASSERT_TRUE(trained) << trained.error().message;
  EXPECT_THAT(lines_, Contains(testing::StartsWith("Epoch[8] Validation-f1=")));
  const json::value report = *read_json_file(folders.output_data() / "evaluation.json");
  EXPECT_GT(*find_number(*find_object(report, "validation"), "accuracy"), 0.6);
  PredictCommand command;
  command.model = folders.model();
  command.files = {(folders.root / "input/data/validation/striped/9.png").string()};
  json::value row;
  command.print = [&](const std::string& line) { row = *parse_json(line); };
  ASSERT_EQ(*run_prediction(command), 0U);
  EXPECT_NE(find_array(row, "labels"), nullptr);
}

// As SageMaker's notebooks have it, whose use_pretrained_model is 0 when it is not given.
TEST_F(TrainingTest, NumLayersAloneTrainsFromRandomWeightsWhereThereAreNone) {
  const char* kLayers = R"({"num_layers":"18","epochs":"1","mini_batch_size":"8","image_size":"32",
                            "engine":"fused-fp32","threads":"2"})";
  ASSERT_TRUE(train(job("open", kLayers)));
  EXPECT_THAT(lines_,
              Contains("warning: resnet-18 starts from random weights: there are none of it "
                       "here"));
  const Result<void> asked =
      train(job("asked", R"({"num_layers":"18","use_pretrained_model":"1"})"));
  ASSERT_FALSE(asked);
  EXPECT_THAT(asked.error().message, HasSubstr("no pretrained weights of resnet-18"));
}

TEST_F(TrainingTest, AnEarlierModelIsGoneOnWithAndWhatDiffersIsNamed) {
  const JobFolders first = job("first", kSmall);
  ASSERT_TRUE(train(first));
  const auto with_model = [&](const std::string& name, const std::string& hyperparameters) {
    const JobFolders next = job(name, hyperparameters);
    std::filesystem::copy(first.model(), next.root / "input" / "data" / "model");
    return next;
  };
  ASSERT_TRUE(train(with_model("same", R"({"epochs":"1","mini_batch_size":"8","threads":"2",
                                           "engine":"fused-fp32"})")));
  EXPECT_THAT(lines_,
              Contains(HasSubstr("incremental: backbone=efficientnet-lite0 image_size=32")));
  EXPECT_THAT(lines_, Contains(HasSubstr("mismatched=0")));
  // Even where it says that no weights are wanted, as SageMaker's default does.
  ASSERT_TRUE(train(with_model("plain", R"({"epochs":"1","mini_batch_size":"8","threads":"2",
                                            "engine":"fused-fp32","use_pretrained_model":"0"})")));
  EXPECT_THAT(lines_, Contains(HasSubstr("loaded=247 missing=0 unexpected=0 mismatched=0")));
  const auto refusal = [&](const std::string& name, const std::string& hyperparameters) {
    const Result<void> trained = train(with_model(name, hyperparameters));
    return trained ? "accepted" : trained.error().message;
  };
  EXPECT_THAT(refusal("layers", R"({"num_layers":"18"})"),
              HasSubstr("has backbone (num_layers) efficientnet-lite0; this job has resnet-18"));
  EXPECT_THAT(refusal("shape", R"({"image_shape":"3,64,64"})"),
              HasSubstr("has image_shape 3,32,32; this job has 3,64,64"));
  const JobFolders renamed = with_model("renamed", "{}");
  for (const std::string channel : {"train", "validation"}) {
    const std::filesystem::path root = renamed.root / "input" / "data" / channel;
    std::filesystem::rename(root / "light", root / "lit");
  }
  EXPECT_THAT(train(renamed).error().message,
              HasSubstr("has as class 1 'light'; this job has 'lit'"));
}

// What a `model` channel has that is not quite ours, whatever use_pretrained_model says.
TEST_F(TrainingTest, AModelThatIsNotWholeIsRefusedByWhatItLacks) {
  const JobFolders first = job("first", kSmall);
  ASSERT_TRUE(train(first));
  const JobFolders next = job("next", "{}");
  const std::filesystem::path channel = next.root / "input" / "data" / "model";
  // Runs `shell` in an empty folder with $M the files of a whole model, and $C the empty channel.
  const auto refusal = [&](const std::string& shell, const std::string& pretrained) {
    EXPECT_TRUE(write_file_durably(
        next.config("hyperparameters.json"),
        fmt::format(R"({{"epochs":"1","mini_batch_size":"8","engine":"fused-fp32","threads":"2",
                         "use_pretrained_model":"{}"}})",
                    pretrained)));
    const std::string work = (next.root / "work").string();
    EXPECT_EQ(std::system(fmt::format("set -e; M='{}' C='{}' W='{}'; rm -rf $C $W; "
                                      "mkdir -p $C $W; cd $W; {}",
                                      first.model().string(), channel.string(), work, shell)
                              .c_str()),
              0)
        << shell;
    const Result<void> trained = train(next);
    return trained ? "accepted" : trained.error().message;
  };
  for (const std::string pretrained : {"0", "1"}) {
    EXPECT_EQ(
        refusal("mkdir model; cp $M/classes.json model; tar czf $C/model.tar.gz model", pretrained),
        "the model in channel 'model': model.tar.gz has no model.safetensors, classes.json, "
        "preprocess.json, model_card.json at its top; it has 'model/classes.json' (within a "
        "folder). A job of image-classification leaves the four as plain files");
    EXPECT_THAT(
        refusal("touch image-classification-0001.params; tar czf $C/model.tar.gz .", pretrained),
        HasSubstr("'./image-classification-0001.params'. That is a model of MXNet, as "
                  "SageMaker's own image-classification leaves it"));
    EXPECT_THAT(refusal("touch $C/model-shapes.json", pretrained),
                HasSubstr("the channel has no model.safetensors, classes.json, preprocess.json, "
                          "model_card.json at its top; it has 'model-shapes.json'. That is a "
                          "model of MXNet"));
    for (const std::string file :
         {"model.safetensors", "classes.json", "preprocess.json", "model_card.json"}) {
      EXPECT_THAT(
          refusal(fmt::format("cp $M/* .; rm {}; tar czf $C/model.tar.gz *", file), pretrained),
          HasSubstr(fmt::format("model.tar.gz has no {} at its top; it has '", file)));
      EXPECT_THAT(refusal(fmt::format("cp $M/* $C; rm $C/{}", file), pretrained),
                  HasSubstr(fmt::format("the channel has no {} at its top; it has '", file)));
    }
    EXPECT_THAT(refusal("cp $M/* .; mv model.safetensors w; ln -s w model.safetensors; "
                        "tar czf $C/model.tar.gz *",
                        pretrained),
                HasSubstr("'model.safetensors' (a link)"));
    EXPECT_THAT(refusal("cp $M/* .; mv classes.json a.json; ln a.json classes.json; "
                        "tar czf $C/model.tar.gz *",
                        pretrained),
                HasSubstr("has no classes.json at its top; it has 'a.json', 'classes.json' (a "
                          "hard link)"));
    EXPECT_THAT(refusal("touch $C/shop.tar.gz", pretrained), HasSubstr("it has 'shop.tar.gz'"));
  }
  EXPECT_THAT(refusal("cp $M/model.safetensors $C/w.safetensors", "0"),
              HasSubstr("is weights alone ('w.safetensors'), and use_pretrained_model=0 wants "
                        "none"));
  EXPECT_EQ(refusal("cp $M/* .; tar czf $C/model.tar.gz ./*", "0"), "accepted");
}

}  // namespace
}  // namespace atelier::vision
