#include "cli/follow.h"

#include <gtest/gtest.h>

namespace atelier::cli {
namespace {

TEST(Follow, AProgressLineIsReadAsItsParts) {
  const auto parts = parse_progress(
      "progress: phase=fine-tune epoch=3/8 step=90/200 images_per_second=310 eta_seconds=95 "
      "train_loss=0.31");
  EXPECT_EQ(parts.at("phase"), "fine-tune");
  EXPECT_EQ(parts.at("epoch"), "3/8");
  const std::string line = render_progress(parts);
  EXPECT_NE(line.find("45 %"), std::string::npos);
  EXPECT_NE(line.find("310 pictures/s"), std::string::npos);
  EXPECT_NE(line.find("ETA 1 min 35 s"), std::string::npos);
}

TEST(Follow, APhaseWithoutStepsShowsHowManyPicturesAreDone) {
  const std::string line =
      render_progress(parse_progress("progress: phase=features done=30/120 images_per_second=60"));
  EXPECT_NE(line.find("25 %"), std::string::npos) << line;
}

TEST(Follow, OtherLinesAreNoProgress) {
  EXPECT_TRUE(parse_progress("Train-accuracy=0.9").empty());
  EXPECT_TRUE(parse_progress("").empty());
  EXPECT_EQ(render_progress(parse_progress("progress: step=1/0 x")), "");
}

}  // namespace
}  // namespace atelier::cli
