#include "vision/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "vision/internal/codecs.h"

namespace atelier::vision {
namespace {

bool starts_with(ImageBytes bytes, std::string_view prefix, std::size_t at = 0) {
  return bytes.size() >= at + prefix.size() &&
         std::memcmp(bytes.data() + at, prefix.data(), prefix.size()) == 0;
}

// A pixel of the upright picture at (x, y) is the stored pixel at origin + x * right + y * down.
struct Turn {
  bool transposed = false;
  bool mirror_x = false;  // of the stored picture
  bool mirror_y = false;
};
Turn turn_of(int orientation) {
  switch (orientation) {
    case 2:
      return {false, true, false};
    case 3:
      return {false, true, true};
    case 4:
      return {false, false, true};
    case 5:
      return {true, false, false};
    case 6:
      return {true, false, true};
    case 7:
      return {true, true, true};
    case 8:
      return {true, true, false};
    default:
      return {};
  }
}

// The stored rectangle that is shown as `shown`, in a stored picture of width x height.
Rect stored_rect(const Rect& shown, const Turn& turn, int width, int height) {
  Rect rect = shown;
  if (turn.transposed) rect = {shown.y, shown.x, shown.height, shown.width};
  if (turn.mirror_x) rect.x = width - rect.x - rect.width;
  if (turn.mirror_y) rect.y = height - rect.y - rect.height;
  return rect;
}
Rect shown_rect(const Rect& stored, const Turn& turn, int width, int height) {
  Rect rect = stored;
  if (turn.mirror_x) rect.x = width - rect.x - rect.width;
  if (turn.mirror_y) rect.y = height - rect.y - rect.height;
  if (turn.transposed) rect = {rect.y, rect.x, rect.height, rect.width};
  return rect;
}

void turn_upright(Image& image, const Turn& turn) {
  Image upright;
  resize_pixels(upright, turn.transposed ? image.height : image.width,
                turn.transposed ? image.width : image.height, image.channels);
  const auto pixel = static_cast<std::size_t>(image.channels);
  std::uint8_t* out = upright.pixels.data();
  for (int y = 0; y < upright.height; ++y) {
    for (int x = 0; x < upright.width; ++x) {
      int u = turn.transposed ? y : x;
      int v = turn.transposed ? x : y;
      if (turn.mirror_x) u = image.width - 1 - u;
      if (turn.mirror_y) v = image.height - 1 - v;
      std::memcpy(out,
                  image.pixels.data() + static_cast<std::size_t>(v) * image.row_bytes() +
                      static_cast<std::size_t>(u) * pixel,
                  pixel);
      out += pixel;
    }
  }
  image = std::move(upright);
}

// PIL's weights of luma (ITU-R 601-2).
std::uint8_t luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + 0x8000U) >>
                                   16);
}

void convert_channels(Image& image, int channels) {
  if (image.channels == channels) return;
  const std::size_t count =
      static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height);
  if (channels == 1) {
    for (std::size_t i = 0; i < count; ++i) image.pixels[i] = luma(&image.pixels[3 * i]);
    image.pixels.resize(count);
  } else {
    image.pixels.resize(3 * count);
    for (std::size_t i = count; i-- > 0;) std::memset(&image.pixels[3 * i], image.pixels[i], 3);
  }
  image.channels = channels;
}

Result<void> check_bytes(ImageBytes bytes, const ImageLimits& limits) {
  if (bytes.size() <= limits.max_bytes) return {};
  return Error{Code::kResourceExhausted, fmt::format("a picture of {} bytes, the limit is {}",
                                                     bytes.size(), limits.max_bytes)};
}

Result<StoredInfo> stored_info(ImageFormat format, ImageBytes bytes, const ImageLimits& limits) {
  TRY(check_bytes(bytes, limits));
  switch (format) {
    case ImageFormat::kJpeg:
      return jpeg_info(bytes, limits);
    case ImageFormat::kPng:
      return png_info(bytes, limits);
    case ImageFormat::kBmp:
      return bmp_info(bytes, limits);
    case ImageFormat::kWebp:
    case ImageFormat::kGif:
    case ImageFormat::kTiff:
      return vips_info(format, bytes, limits);
    case ImageFormat::kUnknown:
      break;
  }
  return Error{Code::kInvalidArgument,
               bytes.empty() ? "the file is empty"
                             : "not a picture: neither JPEG, PNG, WebP, GIF, TIFF nor BMP"};
}

// Decodes at least what is chosen, as it is stored, and says what it decoded.
Result<Rect> decode_stored(ImageFormat format, ImageBytes bytes, const ImageLimits& limits,
                           const StoredChoice& choose, Image& image) {
  if (format == ImageFormat::kJpeg) {
    TRY(check_bytes(bytes, limits));
    return decode_jpeg(bytes, limits, choose, image);  // reads the header once
  }
  TRY(choose(TRY(stored_info(format, bytes, limits))));
  switch (format) {
    case ImageFormat::kPng:
      TRY(decode_png(bytes, limits, image));
      break;
    case ImageFormat::kBmp:
      TRY(decode_bmp(bytes, limits, image));
      break;
    default:
      TRY(decode_vips(format, bytes, limits, image));
      break;
  }
  return Rect{0, 0, image.width, image.height};
}

ImageInfo shown_info(ImageFormat format, const StoredInfo& stored, bool apply_orientation) {
  const int orientation = apply_orientation && stored.orientation >= 1 && stored.orientation <= 8
                              ? stored.orientation
                              : 1;
  ImageInfo info{format, stored.width, stored.height, orientation};
  if (turn_of(orientation).transposed) std::swap(info.width, info.height);
  return info;
}

Result<void> check_region(const Rect& region, const ImageInfo& info) {
  if (region.x >= 0 && region.y >= 0 && region.width > 0 && region.height > 0 &&
      region.width <= info.width - region.x && region.height <= info.height - region.y) {
    return {};
  }
  return Error{Code::kOutOfRange,
               fmt::format("region {}x{} at {},{} of a picture of {}x{}", region.width,
                           region.height, region.x, region.y, info.width, info.height)};
}

Result<Region> decode(ImageBytes bytes, const DecodeOptions& options, const RegionChoice& choose,
                      Image& image) {
  const ImageFormat format = sniff_image(bytes);
  StoredInfo stored;
  ImageInfo info;
  Turn turn;
  const auto choose_stored = [&](const StoredInfo& found) -> Result<std::optional<Rect>> {
    stored = found;
    info = shown_info(format, stored, options.apply_orientation);
    turn = turn_of(info.orientation);
    if (!choose) return std::optional<Rect>{};
    const Rect region = choose(info);
    TRY(check_region(region, info));
    return std::optional(stored_rect(region, turn, stored.width, stored.height));
  };
  const Rect held = TRY(decode_stored(format, bytes, options.limits, choose_stored, image));
  if (info.orientation != 1) turn_upright(image, turn);
  convert_channels(image, options.channels);
  return Region{shown_rect(held, turn, stored.width, stored.height)};
}

}  // namespace

Result<void> check_pixels(const ImageLimits& limits, std::uint64_t width, std::uint64_t height) {
  constexpr std::uint64_t kMaxSide = std::uint64_t{1}
                                     << 24;  // products with scales stay within int
  if (width == 0 || height == 0) return Error{Code::kDataLoss, "damaged picture: it has no pixels"};
  if (width > kMaxSide || height > kMaxSide || width * height > limits.max_pixels) {
    return Error{Code::kResourceExhausted, fmt::format("a picture of {}x{} pixels, the limit is {}",
                                                       width, height, limits.max_pixels)};
  }
  return {};
}

void resize_pixels(Image& image, int width, int height, int channels) {
  image.width = width;
  image.height = height;
  image.channels = channels;
  image.pixels.resize(image.row_bytes() * static_cast<std::size_t>(height));
}

void flatten_alpha(const std::uint8_t* pixels, int channels, Image& image) {
  const auto colours = static_cast<std::size_t>(channels - 1);
  std::uint8_t* out = image.pixels.data();
  const std::size_t count =
      static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height);
  for (std::size_t i = 0; i < count; ++i, pixels += channels, out += colours) {
    const unsigned alpha = pixels[colours];
    for (std::size_t c = 0; c < colours; ++c) {
      out[c] = static_cast<std::uint8_t>((pixels[c] * alpha + 255U * (255U - alpha) + 127U) / 255U);
    }
  }
}

ImageFormat sniff_image(ImageBytes bytes) {
  if (starts_with(bytes, "\xff\xd8\xff")) return ImageFormat::kJpeg;
  if (starts_with(bytes, "\x89PNG\r\n\x1a\n")) return ImageFormat::kPng;
  if (starts_with(bytes, "RIFF") && starts_with(bytes, "WEBP", 8)) return ImageFormat::kWebp;
  if (starts_with(bytes, "GIF87a") || starts_with(bytes, "GIF89a")) return ImageFormat::kGif;
  if (starts_with(bytes, std::string_view("II*\0", 4)) ||
      starts_with(bytes, std::string_view("MM\0*", 4))) {
    return ImageFormat::kTiff;
  }
  if (starts_with(bytes, "BM")) return ImageFormat::kBmp;
  return ImageFormat::kUnknown;
}

std::string_view format_name(ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return "JPEG";
    case ImageFormat::kPng:
      return "PNG";
    case ImageFormat::kWebp:
      return "WebP";
    case ImageFormat::kGif:
      return "GIF";
    case ImageFormat::kTiff:
      return "TIFF";
    case ImageFormat::kBmp:
      return "BMP";
    case ImageFormat::kUnknown:
      break;
  }
  return "unknown";
}

int exif_orientation(ImageBytes tiff) {
  if (tiff.size() < 8) return 1;
  const bool little = starts_with(tiff, "II");
  if (!little && !starts_with(tiff, "MM")) return 1;
  const auto load = [&](std::size_t at, std::size_t size) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value = value << 8 | static_cast<std::uint32_t>(tiff[at + (little ? size - 1 - i : i)]);
    }
    return value;
  };
  const std::size_t directory = load(4, 4);
  if (directory > tiff.size() - 2) return 1;
  const std::uint32_t entries = load(directory, 2);
  for (std::size_t i = 0, at = directory + 2; i < entries && at + 12 <= tiff.size();
       ++i, at += 12) {
    if (load(at, 2) != 0x0112) continue;
    const std::uint32_t value = load(at + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Result<ImageInfo> read_image_info(ImageBytes bytes, const DecodeOptions& options) {
  const ImageFormat format = sniff_image(bytes);
  return shown_info(format, TRY(stored_info(format, bytes, options.limits)),
                    options.apply_orientation);
}

Result<void> decode_image(ImageBytes bytes, const DecodeOptions& options, Image& image) {
  TRY(decode(bytes, options, nullptr, image));
  return {};
}

Result<Region> decode_region(ImageBytes bytes, const DecodeOptions& options, const Rect& region,
                             Image& image) {
  return decode(
      bytes, options, [&](const ImageInfo&) { return region; }, image);
}

Result<Region> decode_region(ImageBytes bytes, const DecodeOptions& options,
                             const RegionChoice& choose, Image& image) {
  return decode(bytes, options, choose, image);
}

}  // namespace atelier::vision
