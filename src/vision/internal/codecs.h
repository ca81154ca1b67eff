// One decoder for each format. They give the picture as it is stored; image.cc turns it upright and
// converts channels.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "vision/image.h"

namespace atelier::vision {

using ImageBytes = std::span<const std::byte>;

// Before orientation is applied.
struct StoredInfo {
  int width = 0;
  int height = 0;
  int orientation = 1;
};

Result<void> check_pixels(const ImageLimits& limits, std::uint64_t width, std::uint64_t height);

Result<StoredInfo> jpeg_info(ImageBytes bytes, const ImageLimits& limits);
// Which part is wanted, in stored coordinates; the whole if none. Asked when the header is read.
using StoredChoice = std::function<Result<std::optional<Rect>>(const StoredInfo&)>;

// Both give the same pixels (jpeg_entropy.h says where errors differ): libjpeg's is there for
// comparison.
enum class HuffmanDecoder { kOwn, kLibjpeg };

// Decodes at least what is wanted and says what it decoded. 1 channel for gray files, else 3.
Result<Rect> decode_jpeg(ImageBytes bytes, const ImageLimits& limits, const StoredChoice& choose,
                         Image& image, HuffmanDecoder huffman = HuffmanDecoder::kOwn);

// 1 or 3 channels; alpha is laid over white, 16 bits become 8 by dropping the lower ones.
Result<StoredInfo> png_info(ImageBytes bytes, const ImageLimits& limits);
Result<void> decode_png(ImageBytes bytes, const ImageLimits& limits, Image& image);

Result<StoredInfo> bmp_info(ImageBytes bytes, const ImageLimits& limits);
Result<void> decode_bmp(ImageBytes bytes, const ImageLimits& limits, Image& image);

// WebP, GIF, TIFF. The first frame of an animation.
Result<StoredInfo> vips_info(ImageFormat format, ImageBytes bytes, const ImageLimits& limits);
Result<void> decode_vips(ImageFormat format, ImageBytes bytes, const ImageLimits& limits,
                         Image& image);

// The orientation (1..8) in a TIFF structure as Exif has it; 1 when there is none or it is damaged.
int exif_orientation(ImageBytes tiff);

// Lays `pixels` of `channels` 2 (gray, alpha) or 4 (RGB, alpha) over white, into image.pixels with
// 1 or 3 channels.
void flatten_alpha(const std::uint8_t* pixels, int channels, Image& image);

void resize_pixels(Image& image, int width, int height, int channels);

}  // namespace atelier::vision
