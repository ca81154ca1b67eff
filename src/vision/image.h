// Pictures from bytes: JPEG by libjpeg-turbo, PNG by libpng, WebP, GIF and TIFF by libvips (loaded
// when the first such picture comes), BMP. The format is told by the bytes, never by the name.
//
//   Image image;
//   TRY(decode_image(bytes, {}, image));        // RGB, upright, 8 bits, whatever was in the file
//
// A picture that is cut short or damaged is kDataLoss, never a half-grey picture; one beyond the
// limits is kResourceExhausted before any pixel is allocated; one that no decoder knows is
// kInvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::vision {

// Interleaved 8-bit pixels without padding: 1 channel (gray) or 3 (RGB).
struct Image {
  int width = 0;
  int height = 0;
  int channels = 3;
  std::vector<std::uint8_t> pixels = {};

  [[nodiscard]] std::size_t row_bytes() const {
    return static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  }
};

enum class ImageFormat { kUnknown, kJpeg, kPng, kWebp, kGif, kTiff, kBmp };

ImageFormat sniff_image(std::span<const std::byte> bytes);
std::string_view format_name(ImageFormat format);  // "JPEG", ...

struct ImageLimits {
  std::uint64_t max_bytes = std::uint64_t{256} << 20;
  // PIL's hard limit: a picture of 50,000 x 50,000 in a few bytes is an attack, not a picture.
  std::uint64_t max_pixels = 178'956'970;
  // Work, for formats that revisit pixels (a progressive JPEG may hold thousands of scans): pixels
  // times passes.
  std::uint64_t max_pixel_passes = std::uint64_t{178'956'970} * 16;
};

// What the header says. Width and height are as shown, that is after `orientation`.
struct ImageInfo {
  ImageFormat format = ImageFormat::kUnknown;
  int width = 0;
  int height = 0;
  int orientation = 1;  // EXIF, 1..8; 1 when absent or ignored
};

// A rectangle of the upright picture, in pixels.
struct Rect {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
  bool operator==(const Rect&) const = default;
};

struct DecodeOptions {
  ImageLimits limits = {};
  bool apply_orientation = true;
  int channels = 3;  // 3: gray becomes RGB; 1: colour becomes luma
};

Result<ImageInfo> read_image_info(std::span<const std::byte> bytes,
                                  const DecodeOptions& options = {});

// Decodes the whole picture into `image`, whose memory is used again.
Result<void> decode_image(std::span<const std::byte> bytes, const DecodeOptions& options,
                          Image& image);

// Decodes at least `region` (within the upright picture); `held` says which rectangle `image` holds
// then, which contains `region`. A JPEG is decoded only around the region where that gives the same
// pixels; other formats whole.
struct Region {
  Rect held;
};
Result<Region> decode_region(std::span<const std::byte> bytes, const DecodeOptions& options,
                             const Rect& region, Image& image);
// The same where the region follows from the header, which is then read only once.
using RegionChoice = std::function<Rect(const ImageInfo&)>;
Result<Region> decode_region(std::span<const std::byte> bytes, const DecodeOptions& options,
                             const RegionChoice& choose, Image& image);

}  // namespace atelier::vision
