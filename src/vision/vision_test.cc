// Tensors: our operations beside ATen's, weights by their names, and whole trainings on drawn
// pictures.
#include "vision/backbone.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "vision/model_files.h"
#include "vision/ops.h"
#include "vision/predict_command.h"
#include "vision/pretrained.h"
#include "vision/training_job_test.h"
#include "vision/weights.h"

namespace atelier::vision {
namespace {

using testing::Contains;
using testing::HasSubstr;

at::Tensor random(at::IntArrayRef sizes) {
  return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / (b.abs().max() + 1e-6)).item<double>();
}

TEST(Ops, DepthwiseConvolutionAndItsGradientsEqualAten) {
  at::manual_seed(1);
  for (const auto& [channels, size, kernel, stride] : std::vector<std::array<std::int64_t, 4>>{
           {40, 7, 3, 1}, {32, 8, 3, 2}, {48, 6, 5, 2}, {8, 2, 5, 1}, {72, 9, 5, 2}}) {
    const at::Tensor x = random({3, channels, size, size}).set_requires_grad(true);
    const at::Tensor w = at::randn({channels, 1, kernel, kernel}).set_requires_grad(true);
    const SamePadding p = same_padding(size, kernel, stride);
    const at::Tensor padded = at::constant_pad_nd(x, {p.before, p.after, p.before, p.after});
    const at::Tensor expected =
        at::convolution(padded, w, {}, {stride, stride}, {0, 0}, {1, 1}, false, {0, 0}, channels);
    const at::Tensor got = depthwise_conv(x, w, stride);
    ASSERT_EQ(got.sizes(), expected.sizes());
    EXPECT_LT(difference(got, expected), 1e-5);
    const at::Tensor grad = at::randn_like(expected);
    expected.backward(grad, true);
    const at::Tensor x_grad = x.grad().clone();
    const at::Tensor w_grad = w.grad().clone();
    x.mutable_grad().reset();
    w.mutable_grad().reset();
    got.backward(grad);
    EXPECT_LT(difference(x.grad(), x_grad), 1e-5);
    EXPECT_LT(difference(w.grad(), w_grad), 1e-5);
  }
}

// One pass of a network with everything that a step touches.
struct Outcome {
  at::Tensor logits;
  std::vector<at::Tensor> gradients, buffers;
};
Outcome one_step(const Network& network, const at::Tensor& pictures, Engine engine, bool train) {
  Outcome outcome;
  outcome.logits = network.logits(network.features(pictures, {.train = train, .engine = engine}));
  outcome.logits.pow(2).mean().backward();
  for (const NamedValue& value : network.values()) {
    if (value.buffer) outcome.buffers.push_back(value.tensor.clone());
    if (!value.buffer) outcome.gradients.push_back(value.tensor.grad().clone());
  }
  return outcome;
}

TEST(Network, TheFusedEngineEqualsAtenInOutputsGradientsAndStatistics) {
  for (const std::string_view name : backbone_names()) {
    for (const bool train : {true, false}) {
      std::vector<Outcome> outcomes;
      for (const Engine engine : {Engine::kFused, Engine::kAten}) {
        Network network = *make_network(name, 5, 3);
        network.set_trained(0);
        at::manual_seed(5);
        outcomes.push_back(one_step(network, random({4, 3, 32, 32}), engine, train));
      }
      EXPECT_LT(difference(outcomes[0].logits, outcomes[1].logits), 1e-3) << name << train;
      // Rounding grows through some fifty layers; a wrong formula is off by its whole size. What is
      // zero but for rounding (a bias before a normalisation) is measured against the whole
      // gradient.
      double whole = 0;
      for (const at::Tensor& gradient : outcomes[1].gradients) {
        whole += gradient.pow(2).sum().item<double>();
      }
      for (std::size_t i = 0; i < outcomes[0].gradients.size(); ++i) {
        const at::Tensor& expected = outcomes[1].gradients[i];
        const double off = (outcomes[0].gradients[i] - expected).norm().item<double>();
        EXPECT_LT(off, 0.02 * expected.norm().item<double>() + 1e-4 * std::sqrt(whole))
            << name << train << i;
      }
      for (std::size_t i = 0; i < outcomes[0].buffers.size(); ++i) {
        EXPECT_TRUE(at::allclose(outcomes[0].buffers[i], outcomes[1].buffers[i], 1e-2, 1e-3))
            << name << train << i;
      }
    }
  }
}

TEST(Network, FrozenUnitsStayBitEqualInATrainingPass) {
  Network network = *make_network("efficientnet-lite0", 4, 1);
  const std::size_t frozen = network.partial_boundary();
  network.set_trained(frozen);
  std::vector<at::Tensor> before;
  for (const NamedValue& value : network.values()) before.push_back(value.tensor.detach().clone());
  network.logits(network.features(random({4, 3, 32, 32}), {.train = true, .frozen_units = frozen}))
      .sum()
      .backward();
  std::size_t changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const NamedValue& value = network.values()[i];
    if (value.unit < frozen) {
      EXPECT_TRUE(at::equal(value.tensor.detach(), before[i])) << value.name;
      EXPECT_FALSE(value.tensor.grad().defined()) << value.name;
    } else if (value.buffer && !at::equal(value.tensor, before[i])) {
      ++changed;
    }
  }
  EXPECT_GT(changed, 10U);
}

TEST(Weights, NamesOfLukemelasBecomeThoseOfTimm) {
  const std::string_view lite = "efficientnet-lite0";
  EXPECT_EQ(translate_name(lite, "_conv_stem.weight"), "conv_stem.weight");
  EXPECT_EQ(translate_name(lite, "_bn1.running_var"), "bn2.running_var");
  EXPECT_EQ(translate_name(lite, "_blocks.0._project_conv.weight"), "blocks.0.0.conv_pw.weight");
  EXPECT_EQ(translate_name(lite, "_blocks.15._bn2.bias"), "blocks.6.0.bn3.bias");
  EXPECT_EQ(translate_name(lite, "_blocks.4._expand_conv.weight"), "blocks.2.1.conv_pw.weight");
  EXPECT_EQ(translate_name("resnet-18", "layer1.0.bn1.weight"), "layer1.0.bn1.weight");
}

// Writes the network's values but for `without`.
void write_values(const std::filesystem::path& path, const Network& network,
                  const std::string& without) {
  std::vector<NamedTensor> tensors;
  for (const NamedValue& value : network.values()) {
    if (value.name == without) continue;
    tensors.push_back({value.name, Dtype::kF32, value.tensor.sizes().vec(),
                       std::as_bytes(std::span(value.tensor.data_ptr<float>(),
                                               static_cast<std::size_t>(value.tensor.numel())))});
  }
  ASSERT_TRUE(write_safetensors(path, tensors));
}

TEST(Weights, OnlyTheClassifierMayDifferAndTheReportSaysWhat) {
  const TempFolder temp = *TempFolder::create();
  const Network source = *make_network("resnet-18", 7, 1);
  write_values(temp.path() / "a.safetensors", source, "");
  Network target = *make_network("resnet-18", 3, 2);
  const Result<WeightsReport> report = load_weights(target, temp.path() / "a.safetensors");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->mismatched, testing::ElementsAre("fc.weight", "fc.bias"));
  EXPECT_TRUE(report->missing.empty());
  EXPECT_FALSE(report->classifier_loaded);
  EXPECT_TRUE(at::equal(target.values()[0].tensor, source.values()[0].tensor));

  write_values(temp.path() / "b.safetensors", source, "layer1.0.conv1.weight");
  const Result<WeightsReport> refused = load_weights(target, temp.path() / "b.safetensors");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("layer1.0.conv1.weight"));
  const Result<WeightsReport> wrong = load_weights(target, temp.path() / "a.safetensors", "00");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::kDataLoss);
}

TEST_F(TrainingTest, LearnsFromScratchAndPredictsWhatValidationSaw) {
  const JobFolders folders = job(
      "job", R"({"use_pretrained_model":"0","epochs":"20","mini_batch_size":"8","image_size":"32",
          "engine":"fused-fp32","threads":"2","optimizer":"adam","learning_rate":"0.003"})");
  const Result<void> trained = train(folders);
  ASSERT_TRUE(trained) << trained.error().message;
  EXPECT_THAT(lines_,
              Contains(testing::MatchesRegex("Epoch\\[20\\] Validation-accuracy=[01]\\.[0-9]+")));
  EXPECT_THAT(lines_, Contains(testing::StartsWith("Epoch[20] Train-accuracy=")));
  const json::value card = *read_json_file(folders.model() / "model_card.json");
  const json::value report = *read_json_file(folders.output_data() / "evaluation.json");
  const json::object* validation = find_object(report, "validation");
  const double accuracy = *find_number(*validation, "accuracy");
  EXPECT_GT(accuracy, 0.6);
  EXPECT_EQ(*find_string(card, "backbone"), "efficientnet-lite0");
  EXPECT_TRUE(std::filesystem::exists(folders.output_data() / "confusion.png"));

  // The same files through `predict`, from the stored model.
  const ImageFolder set = *index_image_folder(folders.root / "input" / "data" / "validation");
  PredictCommand command;
  command.model = folders.model();
  for (const Sample& sample : set.samples)
    command.files.push_back((set.root / sample.path).string());
  std::vector<json::value> rows;
  command.print = [&](const std::string& line) { rows.push_back(*parse_json(line)); };
  ASSERT_EQ(*run_prediction(command), 0U);
  std::size_t correct = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json::value& best = find_array(rows[i], "top")->at(0);
    if (*find_string(best, "label") == set.classes[set.samples[i].label]) ++correct;
  }
  EXPECT_NEAR(static_cast<double>(correct) / static_cast<double>(rows.size()), accuracy, 1e-9);
}

TEST_F(TrainingTest, TheSameSeedGivesTheSameWeightsAndAnotherDoesNot) {
  const std::string short_run =
      R"({"use_pretrained_model":"0","epochs":"1","mini_batch_size":"8","image_size":"32","engine":"fused-fp32","threads":"2","seed":")";
  std::vector<std::string> weights;
  for (const char* seed : {"5", "5", "6"}) {
    const JobFolders folders =
        job("job" + std::to_string(weights.size()), short_run + seed + "\"}");
    ASSERT_TRUE(train(folders));
    weights.push_back(*read_file(folders.model() / "model.safetensors"));
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_NE(weights[0], weights[2]);
}

TEST_F(TrainingTest, DamagedPicturesAreNamedAndFatalOnlyWhenAsked) {
  const std::string quick =
      R"({"use_pretrained_model":"0","epochs":"1","mini_batch_size":"8","image_size":"32","engine":"fused-fp32")";
  JobFolders folders = job("job", quick + "}");
  const auto bad = folders.root / "input" / "data" / "train" / "dark" / "cut.png";
  const std::string whole =
      *read_file(folders.root / "input" / "data" / "train" / "dark" / "0.png");
  ASSERT_TRUE(write_file_durably(bad, whole.substr(0, whole.size() / 2)));
  ASSERT_TRUE(train(folders));
  EXPECT_THAT(lines_, Contains(testing::StartsWith("damaged: dark/cut.png: ")));
  ASSERT_TRUE(write_file_durably(folders.config("hyperparameters.json"),
                                 quick + R"(,"fail_on_corrupt":"1"})"));
  const Result<void> failed = train(folders);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("cut.png"));
}

TEST_F(TrainingTest, AStopKeepsAModelThatPredicts) {
  const JobFolders folders = job("job", kSmall);
  int asked = 0;
  ASSERT_TRUE(train(folders, [&] { return ++asked > 2; }));
  const json::value card = *read_json_file(folders.model() / "model_card.json");
  EXPECT_EQ(*find_bool(*find_object(card, "training"), "stopped"), true);
  const TempFolder scratch = *TempFolder::create();
  EXPECT_TRUE(load_model(folders.model(), scratch.path()));
}

// Stopped after every few steps until one attempt ends by itself.
TEST_F(TrainingTest, HoweverOftenItIsStoppedItGoesOnToTheSameWeights) {
  const std::string settings =
      R"({"use_pretrained_model":"0","epochs":"2","mini_batch_size":"8","image_size":"32","engine":"fused-fp32","threads":"2","checkpoint_interval_seconds":"0")";
  const JobFolders alone = job("alone", settings + "}");
  ASSERT_TRUE(train(alone));
  const std::string expected = *read_file(alone.model() / "model.safetensors");
  for (const int patience : {2, 5}) {
    const JobFolders folders = job("job" + std::to_string(patience), settings + "}");
    ASSERT_TRUE(make_folders(folders.root / "checkpoints"));
    std::size_t attempts = 0;
    for (bool ended = false; !ended; ++attempts) {
      ASSERT_LT(attempts, 12U);
      int asked = 0;
      ASSERT_TRUE(train(folders, [&] { return ++asked >= patience; }));
      ended = std::ranges::any_of(lines_, [](const std::string& line) {
        return line.starts_with("Epoch[2] Validation-accuracy=");
      });
      // A stop leaves a model, too.
      ASSERT_TRUE(load_model(folders.model(), temp_.path() / "scratch"));
    }
    EXPECT_GT(attempts, 2U);
    EXPECT_THAT(lines_, Contains(testing::StartsWith("resumed: ")));
    EXPECT_EQ(*read_file(folders.model() / "model.safetensors"), expected) << patience;
    const json::value card = *read_json_file(folders.model() / "model_card.json");
    const json::object& training = *find_object(card, "training");
    EXPECT_EQ(find_int(training, "interruptions"), static_cast<std::int64_t>(attempts) - 1);
    EXPECT_EQ(find_array(training, "epochs")->size(), 2U);
  }
}

TEST_F(TrainingTest, FeaturesThatWereComputedBeforeAStopAreNotComputedAgain) {
  const JobFolders first = job("first", kSmall);
  ASSERT_TRUE(train(first));
  const std::string weights = (first.model() / "model.safetensors").string();
  const std::string settings =
      R"({"epochs":"3","mini_batch_size":"8","image_size":"32","engine":"fused-fp32","threads":"2","fine_tune":"head","checkpoint_interval_seconds":"0","pretrained_weights":")" +
      weights + "\"}";
  const JobFolders alone = job("alone", settings);
  ASSERT_TRUE(train(alone));
  const JobFolders folders = job("job", settings);
  ASSERT_TRUE(make_folders(folders.root / "checkpoints"));
  ASSERT_TRUE(train(folders, [] { return true; }));
  const auto parts = [&] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folders.root / "checkpoints")) {
      std::string name = entry.path().filename().string();
      if (name.starts_with("features-")) names.push_back(std::move(name));
    }
    return names;
  };
  ASSERT_EQ(parts().size(), 1U);
  ASSERT_TRUE(train(folders));
  // With a checkpoint due after every batch, features computed anew would have made another part.
  EXPECT_EQ(parts().size(), 1U);
  EXPECT_EQ(*read_file(folders.model() / "model.safetensors"),
            *read_file(alone.model() / "model.safetensors"));
}

TEST_F(TrainingTest, ASecondTrainingStartsFromTheModelOfTheFirst) {
  const JobFolders first = job("first", kSmall);
  ASSERT_TRUE(train(first));
  const JobFolders second = job(
      "second",
      R"({"epochs":"1","mini_batch_size":"8","image_size":"32","engine":"fused-fp32","fine_tune":"head"})");
  std::filesystem::create_directories(second.root / "input" / "data" / "model");
  std::filesystem::copy(first.model() / "model.safetensors",
                        second.root / "input" / "data" / "model");
  ASSERT_TRUE(train(second));
  EXPECT_THAT(lines_, Contains(HasSubstr("loaded=247 missing=0 unexpected=0 mismatched=0")));
}

TEST_F(TrainingTest, WhatIsMissingIsNamed) {
  JobFolders folders = job("job", R"({"pretrained_weights":"/nowhere/w.pth"})");
  EXPECT_THAT(train(folders).error().message, HasSubstr("/nowhere/w.pth"));
  ASSERT_TRUE(write_file_durably(folders.config("hyperparameters.json"), R"({"num_classes":"4"})"));
  EXPECT_THAT(train(folders).error().message,
              HasSubstr("'num_classes' is 4; channel 'train' has 3"));
  ASSERT_TRUE(remove_tree(folders.root / "input" / "data" / "train"));
  EXPECT_THAT(train(folders).error().message, HasSubstr("no channel 'train'"));
}

}  // namespace
}  // namespace atelier::vision
