// JPEG, PNG and BMP through the whole way to a network's input. (WebP, GIF and TIFF are libvips',
// which has its own fuzzing.)
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "vision/internal/codecs.h"
#include "vision/preprocess.h"

namespace {

using namespace atelier;

// Our Huffman decoder and libjpeg's agree about every file, but that ours always notices a code
// that does not exist.
void compare_decoders(std::span<const std::byte> bytes, const vision::ImageLimits& limits) {
  vision::Image own;
  vision::Image theirs;
  const auto whole = [](const vision::StoredInfo&) -> Result<std::optional<vision::Rect>> {
    return std::optional<vision::Rect>{};
  };
  const auto a = vision::decode_jpeg(bytes, limits, whole, own, vision::HuffmanDecoder::kOwn);
  const auto b =
      vision::decode_jpeg(bytes, limits, whole, theirs, vision::HuffmanDecoder::kLibjpeg);
  const bool bad_code = !a && a.error().message.ends_with("bad Huffman code");
  ATELIER_CHECK(a.has_value() == b.has_value() || bad_code, "one refuses what the other takes");
  ATELIER_CHECK(!a || own.pixels == theirs.pixels, "the Huffman decoders differ");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint64_t index = data[0];
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data + 1, size - 1));
  const vision::ImageFormat format = vision::sniff_image(bytes);
  if (format == vision::ImageFormat::kWebp || format == vision::ImageFormat::kGif ||
      format == vision::ImageFormat::kTiff) {
    return 0;
  }
  const vision::ImageLimits limits{
      .max_bytes = 1 << 20, .max_pixels = 1 << 18, .max_pixel_passes = 1 << 22};
  if (format == vision::ImageFormat::kJpeg) compare_decoders(bytes, limits);
  const vision::Preprocess spec{
      .width = 32, .height = 24, .resize = 40, .channels = index % 5 == 0 ? 1 : 3};
  static vision::Scratch scratch;
  std::vector<float> out(spec.output_floats());
  const vision::Augmentation augmentation{.brightness = index % 3 == 0 ? 0.4 : 0.0};
  ignore_error(
      vision::preprocess_augmented(bytes, spec, augmentation, {1, 2, index}, out, scratch, limits),
      "any outcome but a crash is right");
  // A region is decoded exactly when the whole is sound; its pixels are those of the whole.
  vision::Image whole;
  vision::Image part;
  const vision::DecodeOptions options{.limits = limits};
  if (!vision::decode_image(bytes, options, whole)) return 0;
  const int x = static_cast<int>(index) % whole.width;
  const int y = static_cast<int>(index * 7) % whole.height;
  const vision::Rect region{x, y, 1 + (whole.width - x - 1) / 2, 1 + (whole.height - y - 1) / 2};
  const auto held = vision::decode_region(bytes, options, region, part);
  ATELIER_CHECK(held.has_value(), "a sound picture has no sound region");
  const vision::Rect& rect = held->held;
  for (int row = region.y; row < region.y + region.height; ++row) {
    for (int column = region.x * 3; column < (region.x + region.width) * 3; ++column) {
      const auto a = whole.pixels[static_cast<std::size_t>(row) * whole.row_bytes() +
                                  static_cast<std::size_t>(column)];
      const auto b = part.pixels[static_cast<std::size_t>(row - rect.y) * part.row_bytes() +
                                 static_cast<std::size_t>(column - rect.x * 3)];
      ATELIER_CHECK(a == b, "a region differs from the whole");
    }
  }
  return 0;
}
