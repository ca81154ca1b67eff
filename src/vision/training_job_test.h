// Whole trainings on drawn pictures, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "vision/encode.h"
#include "vision/train_command.h"

namespace atelier::vision {

// A job folder with drawn pictures: class "dark" is dark with noise, "light" light, "striped"
// striped.
class TrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    // The probe's choice and its cache are not what is tested here.
    setenv("ATELIER_CACHE_DIR", (temp_.path() / "cache").c_str(), 1);
  }

  void draw(const std::filesystem::path& file, int kind, std::uint64_t seed) {
    Image image;
    image.width = image.height = 24;
    image.channels = 1;
    image.pixels.resize(24 * 24);
    for (std::size_t i = 0; i < image.pixels.size(); ++i) {
      const auto noise = static_cast<int>(rng(seed, 7, i) % 60);
      const int level = kind == 0 ? 40 : kind == 1 ? 190 : (i / 24) % 6 < 3 ? 30 : 190;
      image.pixels[i] = static_cast<std::uint8_t>(level + noise);
    }
    ASSERT_TRUE(make_folders(file.parent_path()));
    ASSERT_TRUE(write_file_durably(file, *encode_png(image)));
  }

  JobFolders job(const std::string& name, const std::string& hyperparameters) {
    const JobFolders folders{temp_.path() / name};
    const char* kClasses[] = {"dark", "light", "striped"};
    for (int kind = 0; kind < 3; ++kind) {
      for (std::uint64_t i = 0; i < 12; ++i) {
        const char* channel = i < 8 ? "train" : "validation";
        draw(folders.root / "input" / "data" / channel / kClasses[kind] /
                 (std::to_string(i) + ".png"),
             kind, i * 3 + static_cast<std::uint64_t>(kind));
      }
    }
    EXPECT_TRUE(make_folders(folders.config("")));
    EXPECT_TRUE(write_file_durably(folders.config("hyperparameters.json"), hyperparameters));
    return folders;
  }

  Result<void> train(
      const JobFolders& folders, std::function<bool()> stopped = [] { return false; }) {
    lines_.clear();
    return run_training(
        {folders, [this](const std::string& line) { lines_.push_back(line); }, std::move(stopped)});
  }

  TempFolder temp_ = *TempFolder::create();
  std::vector<std::string> lines_;
};

inline constexpr const char* kSmall =
    R"({"use_pretrained_model":"0","epochs":"1","mini_batch_size":"8","image_size":"32","engine":"fused-fp32","threads":"2","optimizer":"adam","learning_rate":"0.003"})";

}  // namespace atelier::vision
