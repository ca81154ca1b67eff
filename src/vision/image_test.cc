#include "vision/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "vision/encode.h"
#include "vision/pictures_test.h"

namespace atelier::vision {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view bytes, const ImageLimits& limits = {}) {
  Image image;
  const auto decoded = decode_image(as_bytes(bytes), {.limits = limits}, image);
  return decoded ? "no error"
                 : std::string(code_name(decoded.error().code)) + ": " + decoded.error().message;
}

Image decode(const std::string& name, const DecodeOptions& options = {}) {
  Image image;
  const std::string bytes = TestPictures::get().read(name);
  const auto decoded = decode_image(as_bytes(bytes), options, image);
  EXPECT_TRUE(decoded) << name << ": " << decoded.error().message;
  return image;
}

// The largest difference from what PIL shows, whose gray pictures are compared as RGB.
int difference_from_pil(const std::string& name) {
  return max_difference(decode(name), TestPictures::get().raw(name + ".rgb", 3));
}

TEST(Pictures, AreWhatPilShowsInEveryFormat) {
  for (const char* name :
       {"sampling0.jpg", "sampling1.jpg", "sampling2.jpg", "progressive.jpg", "gray.jpg",
        "plain.png", "gray.png", "one_bit.png", "palette.png", "sixteen.png", "picture.bmp",
        "palette.bmp", "gray.bmp", "lossless.webp", "lossy.webp", "palette.gif", "moving.gif",
        "picture.tif", "deflate.tif"}) {
    EXPECT_EQ(difference_from_pil(name), 0) << name;
  }
  EXPECT_LE(difference_from_pil("alpha.png"), 1);
  EXPECT_LE(difference_from_pil("gray_alpha.png"), 1);
  EXPECT_LE(difference_from_pil("cmyk.jpg"), 1);
}

TEST(Pictures, ComeUprightFromAllEightOrientations) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string name = "orientation" + std::to_string(orientation) + ".jpg";
    EXPECT_EQ(difference_from_pil(name), 0) << name;
  }
  const Image stored = decode("orientation6.jpg", {.apply_orientation = false});
  EXPECT_EQ(stored.width, 203);
  const auto info = read_image_info(as_bytes(TestPictures::get().read("orientation6.jpg")));
  EXPECT_EQ(info->width, 157);
  EXPECT_EQ(info->height, 203);
}

TEST(Pictures, OfOneChannelAreTheLumaThatPilComputes) {
  const Image image = decode("plain.png", {.channels = 1});
  EXPECT_EQ(max_difference(image, TestPictures::get().raw("gray.png.rgb", 1)), 0);
}

// A region must have the very pixels of the whole picture: every sampling, place and orientation.
TEST(Regions, OfAJpegHaveThePixelsOfTheWhole) {
  for (const std::string name :
       {"sampling0.jpg", "sampling1.jpg", "sampling2.jpg", "progressive.jpg", "gray.jpg",
        "cmyk.jpg", "plain.png", "orientation3.jpg", "orientation5.jpg", "orientation6.jpg",
        "orientation8.jpg"}) {
    const Image whole = decode(name);
    const std::string bytes = TestPictures::get().read(name);
    for (int step = 0; step < 200; ++step) {
      const int x = (step * 37) % (whole.width - 1);
      const int y = (step * 53) % (whole.height - 1);
      const Rect region{x, y, 1 + (step * 29) % (whole.width - x),
                        1 + (step * 31) % (whole.height - y)};
      Image part;
      const auto decoded = decode_region(as_bytes(bytes), {}, region, part);
      ASSERT_TRUE(decoded) << decoded.error().message;
      const Rect& held = decoded->held;
      ASSERT_LE(held.x, region.x);
      ASSERT_LE(held.y, region.y);
      ASSERT_GE(held.x + held.width, region.x + region.width);
      ASSERT_GE(held.y + held.height, region.y + region.height);
      for (int row = region.y; row < region.y + region.height; ++row) {
        const std::uint8_t* expected =
            &whole.pixels[static_cast<std::size_t>((row * whole.width + region.x) * 3)];
        const std::uint8_t* got = &part.pixels[static_cast<std::size_t>(
            ((row - held.y) * held.width + region.x - held.x) * 3)];
        ASSERT_EQ(std::memcmp(expected, got, static_cast<std::size_t>(region.width) * 3), 0)
            << name << " region " << region.x << "," << region.y << " " << region.width << "x"
            << region.height << " row " << row;
      }
    }
  }
}

TEST(Regions, OutsideOfThePictureAreRefused) {
  const std::string bytes = TestPictures::get().read("plain.png");
  Image image;
  for (const Rect& region :
       {Rect{-1, 0, 5, 5}, Rect{0, 0, 0, 5}, Rect{200, 0, 4, 5}, Rect{0, 150, 5, 2147483647}}) {
    EXPECT_FALSE(decode_region(as_bytes(bytes), {}, region, image));
  }
}

TEST(DamagedPictures, ThatAreCutShortAreNeverHalfGrey) {
  for (const std::string name : {"sampling2.jpg", "progressive.jpg", "plain.png", "picture.bmp",
                                 "lossless.webp", "deflate.tif", "palette.gif"}) {
    const std::string whole = TestPictures::get().read(name);
    for (const std::size_t size :
         {whole.size() / 2, whole.size() / 4, whole.size() - 2, whole.size() * 9 / 10}) {
      const std::string error = error_of(std::string_view(whole).substr(0, size));
      // A GIF may lack its last bytes, a BMP ends with padding; both have all pixels then.
      if (size == whole.size() - 2 && error == "no error") {
        EXPECT_TRUE(name == "palette.gif" || name == "deflate.tif") << name;
        continue;
      }
      EXPECT_THAT(error, HasSubstr("DataLoss")) << name << " cut at " << size;
    }
  }
}

TEST(DamagedPictures, WithAFlippedBitInTheMiddleOfAPngAreNoticed) {
  std::string bytes = TestPictures::get().read("plain.png");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
  EXPECT_THAT(error_of(bytes), HasSubstr("damaged PNG"));
}

TEST(DamagedPictures, ThatAreNoneSayWhatTheyAre) {
  EXPECT_EQ(error_of(""), "InvalidArgument: the file is empty");
  EXPECT_THAT(error_of("<html><body>404</body></html>"), HasSubstr("not a picture"));
}

TEST(HostilePictures, OfHugeSizesAreRefusedBeforeAnythingIsAllocated) {
  std::string png = TestPictures::get().read("plain.png");
  const char huge[] = {0, 0, static_cast<char>(0xc3), 0x50};  // 50,000
  png.replace(16, 4, huge, 4);
  png.replace(20, 4, huge, 4);
  EXPECT_EQ(error_of(png),
            "ResourceExhausted: a picture of 50000x50000 pixels, the limit is 178956970");
  std::string jpeg = TestPictures::get().read("sampling2.jpg");
  const std::size_t frame = jpeg.find("\xff\xc0");
  jpeg.replace(frame + 5, 4, "\xc3\x50\xc3\x50", 4);
  EXPECT_THAT(error_of(jpeg), HasSubstr("a picture of 50000x50000 pixels"));
  EXPECT_THAT(error_of(TestPictures::get().read("plain.png"), {.max_bytes = 1000}),
              HasSubstr("the limit is 1000"));
  EXPECT_THAT(
      error_of(TestPictures::get().read("progressive.jpg"), {.max_pixel_passes = 203 * 157 * 3}),
      HasSubstr("too many scans"));
}

TEST(EncodedPictures, AreReadBackAsTheyWere) {
  const Image image = decode("plain.png");
  const Image gray = decode("gray.png", {.channels = 1});
  for (const Image* original : {&image, &gray}) {
    Image again;
    ASSERT_TRUE(decode_image(as_bytes(encode_png(*original).value()),
                             {.channels = original->channels}, again));
    EXPECT_EQ(max_difference(*original, again), 0);
    ASSERT_TRUE(decode_image(as_bytes(encode_jpeg(*original, 95).value()),
                             {.channels = original->channels}, again));
    EXPECT_LE(mean_difference(*original, again), 10.0);  // unrelated pictures differ by 60
  }
  EXPECT_FALSE(encode_png(Image{.width = 5, .height = 5}));
  EXPECT_FALSE(encode_jpeg(Image{.width = 0, .height = 5}));
}

TEST(ContactSheets, ShowEveryTileWithItsCaption) {
  const std::vector<Tile> tiles = {
      {decode("plain.png"), {"ankle-boot", "sneaker 0.93"}, {200, 0, 0}},
      {decode("gray.png", {.channels = 1}), {"naïve and much too long for a tile"}},
      {decode("moving.gif"), {}}};
  const Image sheet = contact_sheet(
      tiles, {.columns = 2, .tile_width = 64, .tile_height = 48, .title = "mistakes"});
  EXPECT_EQ(sheet.width, 8 + 2 * 72);
  EXPECT_EQ(sheet.height, 8 + 24 + 2 * (48 + 6 + 20 + 8));
  // The first tile's frame, and its middle, which is the picture's and neither white nor the tile's
  // ground.
  EXPECT_THAT(std::vector<std::uint8_t>(&sheet.pixels[(31 * 152 + 7) * 3],
                                        &sheet.pixels[(31 * 152 + 7) * 3 + 3]),
              ::testing::ElementsAre(200, 0, 0));
  const std::size_t middle = static_cast<std::size_t>((32 + 24) * 152 + 8 + 32) * 3;
  EXPECT_FALSE(sheet.pixels[middle] == sheet.pixels[middle + 1] && sheet.pixels[middle] >= 245);
  std::size_t dark = 0;
  for (int y = 32 + 48 + 5; y < 32 + 48 + 25; ++y) {
    for (int x = 8; x < 72; ++x)
      dark += sheet.pixels[static_cast<std::size_t>(y * 152 + x) * 3] < 100 ? 1 : 0;
  }
  EXPECT_GT(dark, 200U);
}

TEST(Text, HasADifferentShapeForEachLetter) {
  std::vector<std::vector<std::uint8_t>> seen;
  for (char c = '!'; c <= '~'; ++c) {
    Image cell{.width = 6, .height = 8, .channels = 1, .pixels = std::vector<std::uint8_t>(48, 0)};
    draw_text(cell, 0, 0, std::string(1, c), {255, 255, 255});
    EXPECT_EQ(std::ranges::count(seen, cell.pixels), 0) << c;
    seen.push_back(cell.pixels);
  }
  EXPECT_EQ(text_width("naïve"), 30);
}

}  // namespace
}  // namespace atelier::vision
