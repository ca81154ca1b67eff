#include "vision/preprocess.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/json.h"
#include "base/rng.h"
#include "vision/internal/resample.h"
#include "vision/pictures_test.h"

namespace atelier::vision {
namespace {

using ::testing::HasSubstr;

constexpr int kViews = 60;

std::string view_name(int number, const std::string& kind) {
  return fmt::format("views/{:03}.{}", number, kind);
}

// The 8-bit values behind the floats of `spec`.
Image to_bytes(const Preprocess& spec, const std::vector<float>& floats) {
  Image image{spec.width, spec.height, spec.channels, std::vector<std::uint8_t>(floats.size())};
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const std::size_t c = i % static_cast<std::size_t>(spec.channels);
    image.pixels[i] =
        static_cast<std::uint8_t>(std::lround((floats[i] * spec.std[c] + spec.mean[c]) * 255.0F));
  }
  return image;
}

std::vector<float> run(const std::string& bytes, const Preprocess& spec) {
  std::vector<float> out(spec.output_floats());
  Scratch scratch;
  const auto done = preprocess(as_bytes(bytes), spec, out, scratch);
  EXPECT_TRUE(done) << done.error().message;
  return out;
}

void expect_pil(const Preprocess& spec, const std::string& kind) {
  for (int number = 0; number < kViews; ++number) {
    const Image ours =
        to_bytes(spec, run(TestPictures::get().read(view_name(number, "jpg")), spec));
    const Image theirs = TestPictures::get().raw(view_name(number, kind), 3);
    EXPECT_EQ(max_difference(ours, theirs), 0) << view_name(number, kind);
  }
}

TEST(Preprocessing, HasTheBitsOfTorchvisionOnPil) {
  expect_pil({}, "eval");
  expect_pil({.interpolation = Interpolation::kBicubic}, "cubic");
  expect_pil({.width = 160, .height = 128, .mode = ResizeMode::kSquash}, "squash");
}

TEST(Preprocessing, OfABoxHasTheBitsOfPilsCropAndResize) {
  const Preprocess spec;
  for (int number = 0; number < kViews; ++number) {
    Image source;
    ASSERT_TRUE(
        decode_image(as_bytes(TestPictures::get().read(view_name(number, "jpg"))), {}, source));
    const int w = source.width;
    const int h = source.height;
    const View view{.crop = {w / 5, h / 7, w - w / 9 - w / 5, h - h / 6 - h / 7},
                    .scaled_width = 224,
                    .scaled_height = 224};
    const Image ours = render_view(source, spec, view).value();
    EXPECT_EQ(max_difference(ours, TestPictures::get().raw(view_name(number, "crop"), 3)), 0)
        << number;
  }
}

TEST(Preprocessing, NormalisesAsTorchvisionDoes) {
  const Preprocess spec{.width = 8,
                        .height = 8,
                        .mode = ResizeMode::kSquash,
                        .mean = {0.5F, 0.4F, 0.3F},
                        .std = {0.2F, 0.3F, 0.4F}};
  Image plain{4, 4, 3, std::vector<std::uint8_t>(48)};
  for (std::size_t i = 0; i < 48; ++i)
    plain.pixels[i] = static_cast<std::uint8_t>(10 + 100 * (i % 3));
  const View view = eval_view(spec, 4, 4);
  const Image rendered = render_view(plain, spec, view).value();
  for (std::size_t i = 0; i < rendered.pixels.size(); ++i)
    EXPECT_EQ(rendered.pixels[i], 10 + 100 * (i % 3));
  const std::vector<float> floats = run(TestPictures::get().read("gray.jpg"), spec);
  const Image bytes = to_bytes(spec, floats);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const float expected =
        (static_cast<float>(bytes.pixels[i]) / 255.0F - spec.mean[i % 3]) / spec.std[i % 3];
    EXPECT_NEAR(floats[i], expected, 2e-6F);
  }
}

TEST(Kernels, GiveTheSameBitsOnEveryProcessor) {
  const ResampleKernel* fast = avx2_kernel();
  if (fast == nullptr) GTEST_SKIP() << "this processor has no AVX2: there is only one kernel";
  const ResampleKernel& plain = generic_kernel();
  const float scale[3] = {0.01F, 0.02F, 0.03F};
  const float bias[3] = {-1.5F, 0.25F, 2.0F};
  for (std::uint64_t round = 0; round < 300; ++round) {
    const auto below = [&](std::uint64_t stream, int count) {
      return static_cast<int>(rng(round, stream, 0) % static_cast<std::uint64_t>(count));
    };
    const int channels = round % 3 == 0 ? 1 : 3;
    const int source = 1 + below(1, 400);
    const int scaled = 1 + below(2, 400);
    const int first = below(3, scaled);
    const int count = 1 + below(4, scaled - first);
    std::vector<std::int32_t> begins;
    std::vector<std::int16_t> weights;
    const AxisPlan plan =
        plan_axis(round % 2 == 0 ? Interpolation::kBilinear : Interpolation::kBicubic, source,
                  scaled, first, count, begins, weights);
    const int lines = 1 + below(7, 4);
    const auto line = static_cast<std::size_t>(source * channels);
    std::vector<std::uint8_t> row(line * static_cast<std::size_t>(lines) + 4000);
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = static_cast<std::uint8_t>(rng(round, 9, i));
    const std::size_t bytes = static_cast<std::size_t>(count * channels);
    const std::size_t padded = bytes + kRowSlack;
    std::vector<std::uint8_t> a(padded * static_cast<std::size_t>(lines));
    std::vector<std::uint8_t> b(a.size());
    plain.horizontal(row.data(), line, lines, plan, 0, count, channels, round % 5 == 0, a.data(),
                     padded);
    fast->horizontal(row.data(), line, lines, plan, 0, count, channels, round % 5 == 0, b.data(),
                     padded);
    for (std::size_t y = 0; y < static_cast<std::size_t>(lines); ++y) {
      ASSERT_TRUE(std::equal(&a[y * padded], &a[y * padded] + bytes, &b[y * padded]))
          << round << " row " << y;
    }

    const std::size_t stride = 200 + kRowSlack;
    const int taps = 1 + below(5, 12);
    const auto width = static_cast<std::size_t>(channels * (1 + below(6, 66)));
    std::vector<std::uint8_t> rows(stride * 13);
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = static_cast<std::uint8_t>(rng(round, 10, i));
    std::vector<std::int16_t> column(24);
    for (int tap = 0; tap < taps; ++tap) {  // the groups' other weights are zero
      for (const int half : {0, kTapGroup}) {
        const int at = tap / kTapGroup * 2 * kTapGroup + tap % kTapGroup + half;
        const auto draw = static_cast<int>(rng(round, 11, static_cast<std::uint64_t>(at)) % 2600);
        column[static_cast<std::size_t>(at)] =
            static_cast<std::int16_t>(round % 4 == 0 ? draw : draw - 800);
      }
    }
    std::vector<std::uint8_t> c(width + kRowSlack);
    std::vector<std::uint8_t> d(width + kRowSlack);
    plain.vertical(rows.data(), stride, column.data(), taps, width, c.data());
    fast->vertical(rows.data(), stride, column.data(), taps, width, d.data());
    ASSERT_TRUE(std::equal(c.begin(), c.begin() + static_cast<std::ptrdiff_t>(width), d.begin()))
        << round;
    std::vector<float> e(width);
    std::vector<float> f(width);
    plain.vertical_normalised(rows.data(), stride, column.data(), taps, width, channels, scale,
                              bias, e.data());
    fast->vertical_normalised(rows.data(), stride, column.data(), taps, width, channels, scale,
                              bias, f.data());
    ASSERT_EQ(e, f) << round;
  }
}

TEST(RandomViews, DependOnSeedEpochAndIndexAlone) {
  const Preprocess spec;
  const Augmentation augmentation{.brightness = 0.4, .saturation = 0.4};
  const View view = random_view(spec, augmentation, {1, 2, 3}, 300, 225);
  EXPECT_EQ(view, random_view(spec, augmentation, {1, 2, 3}, 300, 225));
  EXPECT_NE(view, random_view(spec, augmentation, {2, 2, 3}, 300, 225));
  EXPECT_NE(view, random_view(spec, augmentation, {1, 3, 3}, 300, 225));
  EXPECT_NE(view, random_view(spec, augmentation, {1, 2, 4}, 300, 225));
}

TEST(RandomViews, HaveTheDistributionOfRandomResizedCrop) {
  const Augmentation augmentation;
  double area = 0;
  double ratio = 0;
  int flips = 0;
  std::set<int> lefts;
  constexpr int kDraws = 20000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const View view = random_view({}, augmentation, {7, 1, i}, 300, 300);
    ASSERT_GE(view.crop.x, 0);
    ASSERT_GE(view.crop.y, 0);
    ASSERT_LE(view.crop.x + view.crop.width, 300);
    ASSERT_LE(view.crop.y + view.crop.height, 300);
    area += view.crop.width * view.crop.height / 90000.0;
    ratio += std::log(static_cast<double>(view.crop.width) / view.crop.height);
    flips += view.flip ? 1 : 0;
    lefts.insert(view.crop.x);
  }
  EXPECT_NEAR(area / kDraws, std::stod(TestPictures::get().read("views/area.txt")), 0.008);
  EXPECT_NEAR(ratio / kDraws, 0.0, 0.005);
  EXPECT_NEAR(flips, kDraws / 2, 300);
  EXPECT_GT(lefts.size(), 150U);
}

TEST(RandomViews, WithoutACropStayWithinThePicture) {
  const Augmentation augmentation{.random_crop = false, .translate = 0.5};
  std::set<std::pair<int, int>> places;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const View view = random_view({}, augmentation, {7, 1, i}, 300, 200);
    ASSERT_GE(view.left, 0);
    ASSERT_LE(view.left + 224, view.scaled_width);
    ASSERT_GE(view.top, 0);
    ASSERT_LE(view.top + 224, view.scaled_height);
    places.emplace(view.left, view.top);
  }
  EXPECT_GT(places.size(), 100U);
}

TEST(AugmentedPictures, AreTheirViewOfTheDecodedPicture) {
  const Preprocess spec;
  const Augmentation augmentation{.brightness = 0.3, .contrast = 0.3, .saturation = 0.3};
  for (const Augmentation& each : {Augmentation{}, augmentation}) {
    for (int number = 0; number < kViews; ++number) {
      const std::string bytes = TestPictures::get().read(view_name(number, "jpg"));
      const Draw draw{5, 6, static_cast<std::uint64_t>(number)};
      std::vector<float> out(spec.output_floats());
      Scratch scratch;
      ASSERT_TRUE(preprocess_augmented(as_bytes(bytes), spec, each, draw, out, scratch));
      Image source;
      ASSERT_TRUE(decode_image(as_bytes(bytes), {}, source));
      const View view = random_view(spec, each, draw, source.width, source.height);
      EXPECT_EQ(max_difference(to_bytes(spec, out), render_view(source, spec, view).value()), 0)
          << number;
    }
  }
}

TEST(FlippedViews, AreMirrored) {
  Image source;
  ASSERT_TRUE(decode_image(as_bytes(TestPictures::get().read("plain.png")), {}, source));
  const Preprocess spec{.width = 64, .height = 48, .mode = ResizeMode::kSquash};
  View view = eval_view(spec, source.width, source.height);
  const Image plain = render_view(source, spec, view).value();
  view.flip = true;
  const Image flipped = render_view(source, spec, view).value();
  for (std::size_t y = 0; y < 48; ++y) {
    for (std::size_t x = 0; x < 64; ++x) {
      for (std::size_t c = 0; c < 3; ++c) {
        ASSERT_EQ(plain.pixels[(y * 64 + x) * 3 + c], flipped.pixels[(y * 64 + 63 - x) * 3 + c]);
      }
    }
  }
}

TEST(Specs, SurviveJson) {
  const Preprocess spec{.width = 160,
                        .height = 128,
                        .mode = ResizeMode::kSquash,
                        .interpolation = Interpolation::kBicubic,
                        .channels = 1,
                        .mean = {0.1F, 0.2F, 0.3F},
                        .std = {0.5F, 0.6F, 0.7F},
                        .apply_orientation = false};
  const auto again =
      preprocess_from_json(parse_json(json::serialize(preprocess_to_json(spec))).value());
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, spec);
}

TEST(Specs, ThatCannotBeRightAreRefusedByName) {
  EXPECT_THAT(check_preprocess({.resize = 100}).error().message, HasSubstr("resize is 100"));
  EXPECT_THAT(check_preprocess({.width = 0}).error().message, HasSubstr("width"));
  EXPECT_THAT(check_preprocess({.channels = 2}).error().message, HasSubstr("channels is 2"));
  EXPECT_THAT(check_preprocess({.std = {1, 0, 1}}).error().message, HasSubstr("std"));
  EXPECT_THAT(check_augmentation({.flip = 2}).error().message, HasSubstr("flip is 2"));
  EXPECT_THAT(check_augmentation({.scale = {0.5, 0.2}}).error().message, HasSubstr("scale"));
  json::object broken = preprocess_to_json({});
  broken["mode"] = "stretch";
  EXPECT_THAT(preprocess_from_json(broken).error().message,
              HasSubstr("'squash' or 'shorter_side'"));
}

TEST(HostilePictures, OfExtremeShapesAreHandled) {
  Image wide{
      .width = 60000, .height = 1, .channels = 3, .pixels = std::vector<std::uint8_t>(180000, 9)};
  const Preprocess spec;
  const Image rendered = render_view(wide, spec, eval_view(spec, wide.width, wide.height)).value();
  EXPECT_EQ(rendered.pixels[0], 9);
  const Image tiny{.width = 1, .height = 1, .channels = 3, .pixels = {1, 2, 3}};
  EXPECT_EQ(render_view(tiny, spec, eval_view(spec, 1, 1)).value().pixels[224 * 224 * 3 - 1], 3);
}

}  // namespace
}  // namespace atelier::vision
