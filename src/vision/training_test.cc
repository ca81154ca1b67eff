// What training needs that knows no tensors: settings, schedule, metrics, optimisers, held-out
// pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "vision/evaluation.h"
#include "vision/hyperparameters.h"
#include "vision/job_folders.h"
#include "vision/optimizer.h"
#include "vision/schedule.h"
#include "vision/training_data.h"

namespace atelier::vision {
namespace {

using testing::HasSubstr;
using Values = std::map<std::string, std::string>;

std::string refusal(const Values& values) {
  const Result<Hyperparameters> h = parse_hyperparameters(values);
  return h ? "accepted" : h.error().message;
}

TEST(Hyperparameters, AreTakenAsEstimatorsSendThem) {
  const Result<Hyperparameters> h = parse_hyperparameters({{"epochs", "7"},
                                                           {"learning_rate", "0.01"},
                                                           {"optimizer", "\"sgd\""},
                                                           {"mini_batch_size", "32.0"},
                                                           {"early_stopping", "True"},
                                                           {"image_shape", "3,96,96"},
                                                           {"lr_scheduler_step", "10,20"},
                                                           {"num_layers", "18"},
                                                           {"sagemaker_program", "train.py"},
                                                           {"_tuning_objective_metric", "x"}});
  ASSERT_TRUE(h) << h.error().message;
  EXPECT_EQ(h->epochs, 7);
  EXPECT_EQ(h->optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(h->mini_batch_size, 32);
  EXPECT_TRUE(h->early_stopping);
  EXPECT_EQ(h->image_size, 96);
  EXPECT_EQ(h->lr_scheduler_step, (std::vector<std::int64_t>{10, 20}));
  EXPECT_EQ(h->backbone, "resnet-18");
  EXPECT_DOUBLE_EQ(h->optimizer.weight_decay, 1e-4);
}

TEST(Hyperparameters, ARefusalNamesNameValueAndLimit) {
  EXPECT_EQ(refusal({{"epochs", "0"}}),
            "hyperparameter 'epochs' is '0'; it must be an integer from 1 to 1000000");
  EXPECT_THAT(refusal({{"learning_rate", "2"}}), HasSubstr("'learning_rate' is '2'"));
  EXPECT_THAT(refusal({{"learning_rate", "nan"}}), HasSubstr("'learning_rate' is 'nan'"));
  EXPECT_THAT(refusal({{"top_k", "1"}}), HasSubstr("'top_k' is '1'"));
  EXPECT_THAT(refusal({{"mini_batch_size", "3.5"}}), HasSubstr("an integer"));
  EXPECT_THAT(refusal({{"optimizer", "adamax"}}), HasSubstr("none of sgd, nag, adam"));
  EXPECT_THAT(refusal({{"lr_scheduler_step", "20,10"}}), HasSubstr("increasing"));
  EXPECT_THAT(refusal({{"image_shape", "1,28,28"}}), HasSubstr("3,SIZE,SIZE"));
  EXPECT_THAT(refusal({{"multi_label", "2"}}), HasSubstr("'multi_label' is '2'"));
  EXPECT_THAT(refusal({{"checkpoint", "here"}}), HasSubstr("the absolute path of a folder"));
  EXPECT_THAT(refusal({{"resize", "32"}, {"image_size", "64"}}), HasSubstr("at least image_size"));
}

TEST(Hyperparameters, AnUnknownNameIsRefusedWithTheNearestKnownOne) {
  EXPECT_EQ(refusal({{"learning_rte", "0.1"}}),
            "hyperparameter 'learning_rte' is not known; the nearest that is: 'learning_rate'");
}

TEST(Schedule, WarmsUpToTheTopAndEndsNearZero) {
  EXPECT_LT(cosine_share(0, 0.1), 0.1);
  EXPECT_NEAR(cosine_share(0.1, 0.1), 1, 1e-9);
  EXPECT_LT(cosine_share(1, 0.1), 0.01);
  EXPECT_DOUBLE_EQ(step_share(9, {10, 20}, 0.5), 1);
  EXPECT_DOUBLE_EQ(step_share(20, {10, 20}, 0.5), 0.25);
}

TEST(Evaluation, CountsRanksPerClassAndTies) {
  Evaluator evaluator(3, 2);
  const std::vector<float> rows{0.7F, 0.2F,  0.1F,    // right
                                0.5F, 0.3F,  0.2F,    // truth 1 comes second
                                0.5F, 0.5F,  0.0F,    // a tie: the lower number comes first
                                0.4F, 0.35F, 0.25F};  // truth 2 comes last
  evaluator.add(rows, std::vector<std::int64_t>{0, 1, 1, 2});
  const Evaluation e = evaluator.finish();
  EXPECT_DOUBLE_EQ(e.top_1, 0.25);
  EXPECT_DOUBLE_EQ(e.top_k, 0.75);
  EXPECT_EQ(e.classes[1].support, 2U);
  EXPECT_DOUBLE_EQ(e.classes[0].recall(), 1);
  EXPECT_DOUBLE_EQ(e.classes[0].precision(), 0.25);
  EXPECT_DOUBLE_EQ(e.macro_recall, 1.0 / 3);
  EXPECT_EQ(e.confusion[1 * 3 + 0], 2U);
  EXPECT_EQ(most_confused(e, 1).front().truth, 1U);
}

TEST(Evaluation, SeveralLabelsAPictureAreCountedByClass) {
  Evaluator evaluator(3, 2, true);
  using Set = std::vector<std::uint32_t>;
  evaluator.add_set(std::vector<float>{0.9F, 0.2F, 0.5F}, Set{0, 2});  // all right
  evaluator.add_set(std::vector<float>{0.9F, 0.6F, 0.1F}, Set{0});     // one too many
  evaluator.add_set(std::vector<float>{0.4F, 0.1F, 0.1F}, Set{0});     // one missed
  evaluator.add_set(std::vector<float>{0.1F, 0.1F, 0.1F}, Set{});      // none, and so it is
  const Evaluation e = evaluator.finish();
  EXPECT_DOUBLE_EQ(e.top_1, 10.0 / 12);
  EXPECT_DOUBLE_EQ(e.exact, 0.5);
  EXPECT_DOUBLE_EQ(e.micro_precision, 3.0 / 4);
  EXPECT_DOUBLE_EQ(e.micro_recall, 3.0 / 4);
  EXPECT_DOUBLE_EQ(e.micro_f1, 3.0 / 4);
  EXPECT_DOUBLE_EQ(e.classes[0].recall(), 2.0 / 3);
  EXPECT_TRUE(most_confused(e, 5).empty());
  const json::object report = evaluation_to_json(e, {"a", "b", "c"});
  EXPECT_FALSE(report.contains("confusion"));
  EXPECT_DOUBLE_EQ(report.at("micro").at("f1").as_double(), 0.75);
}

TEST(Evaluation, KIsCutToTheNumberOfClassesAndNaNIsAlwaysWrong) {
  Evaluator evaluator(2, 5);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  evaluator.add(std::vector<float>{0.1F, 0.9F, nan, nan}, std::vector<std::int64_t>{0, 0});
  const Evaluation e = evaluator.finish();
  EXPECT_EQ(e.k, 2U);
  EXPECT_DOUBLE_EQ(e.top_k, 0.5);
}

TEST(Optimizer, EveryKindReachesTheMinimumOfAParabola) {
  for (const char* name : {"sgd", "nag", "adam", "adamw", "rmsprop"}) {
    const std::vector<std::size_t> sizes{9};
    Optimizer optimizer({.kind = *parse_optimizer(name)}, sizes);
    std::vector<float> values(9, 5.0F);
    std::vector<float> gradients(9);
    for (int step = 0; step < 2000; ++step) {
      for (std::size_t i = 0; i < 9; ++i) gradients[i] = 2 * (values[i] - 1);
      optimizer.begin_step();
      optimizer.update(0, values, gradients, 0.01 * (1 - step / 2000.0), true);
    }
    for (const float value : values) EXPECT_NEAR(value, 1, 0.02) << name;
  }
}

TEST(Optimizer, TheFirstStepOfAdamWIsTheLearningRateAndTheDecay) {
  const std::vector<std::size_t> sizes{1};
  Optimizer optimizer({.kind = OptimizerKind::kAdamW, .weight_decay = 0.1}, sizes);
  std::vector<float> value{2.0F};
  optimizer.begin_step();
  optimizer.update(0, value, std::vector<float>{0.3F}, 0.5, true);
  EXPECT_NEAR(value[0], 2 * (1 - 0.5 * 0.1) - 0.5, 1e-5);
}

TEST(HoldOut, TakesAShareOfEachClassAndNeverAPictureTwice) {
  ImageFolder folder;
  folder.classes = {"a", "b", "lonely"};
  for (std::uint32_t i = 0; i < 121; ++i)
    folder.samples.push_back({"x", i < 100 ? 0U : i < 120 ? 1U : 2U, 1});
  std::vector<std::uint32_t> train;
  std::vector<std::uint32_t> held_out;
  hold_out(folder, 0.1, 1000, train, held_out);
  EXPECT_EQ(held_out.size(), 12U);
  std::vector<std::uint32_t> all = train;
  all.insert(all.end(), held_out.begin(), held_out.end());
  std::sort(all.begin(), all.end());
  for (std::uint32_t i = 0; i < 121; ++i) EXPECT_EQ(all[i], i);
  EXPECT_EQ(std::count(train.begin(), train.end(), 120U), 1);
}

TEST(JobFolders, SeveralHostsAndPipesAreRefusedByName) {
  const TempFolder temp = *TempFolder::create();
  const JobFolders folders{temp.path()};
  ASSERT_TRUE(make_folders(folders.config("")));
  ASSERT_TRUE(write_file_durably(folders.config("resourceconfig.json"),
                                 R"({"hosts":["algo-1","algo-2"]})"));
  EXPECT_THAT(check_job(folders).error().message, HasSubstr("InstanceCount is 2"));
  ASSERT_TRUE(write_file_durably(folders.config("resourceconfig.json"), R"({"hosts":["algo-1"]})"));
  ASSERT_TRUE(write_file_durably(folders.config("inputdataconfig.json"),
                                 R"({"train":{"TrainingInputMode":"Pipe"}})"));
  EXPECT_THAT(check_job(folders).error().message, HasSubstr("channel 'train'"));
}

TEST(JobFolders, AFailureIsWrittenOnce) {
  const TempFolder temp = *TempFolder::create();
  const JobFolders folders{temp.path()};
  write_failure(folders, Error{Code::kInvalidArgument, "first"});
  write_failure(folders, Error{Code::kInvalidArgument, "second"});
  EXPECT_EQ(*read_file(folders.failure()), "first\n");
}

}  // namespace
}  // namespace atelier::vision
