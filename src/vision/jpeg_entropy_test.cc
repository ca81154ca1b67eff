// Our Huffman decoder beside libjpeg's: every kind of sequential scan, sound and damaged.
#include <cstdio>

#include <jpeglib.h>

#include <gtest/gtest.h>

#include <random>

#include "vision/internal/codecs.h"
#include "vision/pictures_test.h"

namespace atelier::vision {
namespace {

struct Encoding {
  int sampling = 1;  // of luma, in both directions
  int quality = 80;
  unsigned restart_interval = 0;  // MCUs
  bool optimised = false;         // tables for this very picture
  bool gray = false;
};

// Smooth, with some noise: long runs and dense blocks.
Image test_picture(int width, int height) {
  Image image{.width = width, .height = height};
  std::mt19937 random(7);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const int noise = x > width / 2 ? static_cast<int>(random() % 120) : 0;
      for (int c = 0; c < 3; ++c)
        image.pixels.push_back(static_cast<std::uint8_t>((x * (c + 1) + y + noise) % 256));
    }
  }
  return image;
}

std::string encode(const Image& image, const Encoding& how) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  if (how.gray) jpeg_set_colorspace(&info, JCS_GRAYSCALE);
  jpeg_set_quality(&info, how.quality, TRUE);
  info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = how.sampling;
  info.restart_interval = how.restart_interval;
  info.optimize_coding = how.optimised ? TRUE : FALSE;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(image.pixels.data() + info.next_scanline * image.row_bytes());
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string encoded(reinterpret_cast<const char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return encoded;
}

// What comes out, pixels or the kind of error.
struct Outcome {
  std::vector<std::uint8_t> pixels;
  std::string error;
  std::string message;
  bool operator==(const Outcome&) const = default;
};
Outcome decode_with(HuffmanDecoder huffman, std::string_view bytes,
                    const std::optional<Rect>& wanted = std::nullopt) {
  Image image;
  const auto held = decode_jpeg(
      as_bytes(bytes), {}, [&](const StoredInfo&) -> Result<std::optional<Rect>> { return wanted; },
      image, huffman);
  if (!held) return {{}, std::string(code_name(held.error().code)), held.error().message};
  return {image.pixels, "", ""};
}

std::vector<Encoding> encodings() {
  std::vector<Encoding> all;
  for (const int sampling : {1, 2}) {
    for (const int quality : {15, 80, 100}) {
      for (const unsigned interval : {0U, 1U, 7U, 10U}) {
        for (const bool optimised : {false, true})
          all.push_back({sampling, quality, interval, optimised});
      }
    }
  }
  all.push_back({.restart_interval = 3, .gray = true});
  return all;
}

TEST(JpegEntropy, GivesThePixelsThatLibjpegGives) {
  for (const auto& [width, height] : {std::pair(150, 93), std::pair(16, 16), std::pair(1, 1)}) {
    const Image picture = test_picture(width, height);
    for (const Encoding& encoding : encodings()) {
      const std::string bytes = encode(picture, encoding);
      SCOPED_TRACE(testing::Message()
                   << width << "x" << height << " sampling " << encoding.sampling << " quality "
                   << encoding.quality << " restarts " << encoding.restart_interval);
      const Outcome expected = decode_with(HuffmanDecoder::kLibjpeg, bytes);
      EXPECT_EQ(expected.error, "");
      EXPECT_TRUE(decode_with(HuffmanDecoder::kOwn, bytes) == expected);
      const Rect part{width / 3, height / 3, (width + 2) / 3, (height + 2) / 3};
      EXPECT_TRUE(decode_with(HuffmanDecoder::kOwn, bytes, part) ==
                  decode_with(HuffmanDecoder::kLibjpeg, bytes, part));
    }
  }
}

// libjpeg-turbo takes a code that does not exist for the end of a block, but near the end of the
// file; here it is damage everywhere.
TEST(JpegEntropy, CallsDamageWhatLibjpegCallsDamageAndBadCodesEverywhere) {
  const Image picture = test_picture(150, 93);
  std::mt19937 random(11);
  int sound = 0;
  int damaged = 0;
  for (const Encoding& encoding : encodings()) {
    const std::string whole = encode(picture, encoding);
    for (int i = 0; i < 60; ++i) {
      std::string bytes = whole;
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 1:
          bytes.erase(at, 1 + random() % 40);
          break;
        case 2:
          bytes.insert(at,
                       random() % 2 == 0 ? std::string("\xff\xd3", 2) : std::string("\xff\xff", 2));
          break;
        default:
          bytes = bytes.substr(0, at) + "\xff\xd9";
          break;
      }
      const Outcome expected = decode_with(HuffmanDecoder::kLibjpeg, bytes);
      (expected.error.empty() ? sound : damaged) += 1;
      const Outcome own = decode_with(HuffmanDecoder::kOwn, bytes);
      if (expected.error.empty() && own.message.ends_with("bad Huffman code")) continue;
      ASSERT_TRUE(own.error == expected.error && own.pixels == expected.pixels)
          << "sampling " << encoding.sampling << " restarts " << encoding.restart_interval
          << " try " << i << ": " << expected.error;
    }
  }
  EXPECT_GT(sound, 100);
  EXPECT_GT(damaged, 100);
}

}  // namespace
}  // namespace atelier::vision
