// BMP without compression: 1, 4 and 8 bits with a palette, 24 and 32 bits. libvips reads the format
// only through ImageMagick, which has no place in front of hostile bytes.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "vision/internal/codecs.h"

namespace atelier::vision {
namespace {

struct Header {
  std::uint32_t pixels_at = 0;
  std::uint32_t header_size = 0;
  std::int64_t width = 0;
  std::int64_t height = 0;
  bool top_down = false;
  unsigned bits = 0;
  std::uint32_t colours = 0;
};

template <typename Integer>
Integer load(ImageBytes bytes, std::size_t at) {
  Integer value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

Result<Header> read_header(ImageBytes bytes, const ImageLimits& limits) {
  if (bytes.size() < 54) return Error{Code::kDataLoss, "damaged BMP: cut short"};
  Header header;
  header.pixels_at = load<std::uint32_t>(bytes, 10);
  header.header_size = load<std::uint32_t>(bytes, 14);
  if (header.header_size < 40 || header.header_size > 124) {
    return Error{Code::kUnimplemented,
                 fmt::format("BMP with a header of {} bytes", header.header_size)};
  }
  header.width = load<std::int32_t>(bytes, 18);
  header.height = load<std::int32_t>(bytes, 22);
  header.top_down = header.height < 0;
  header.height = std::abs(header.height);
  header.bits = load<std::uint16_t>(bytes, 28);
  const auto compression = load<std::uint32_t>(bytes, 30);
  header.colours = load<std::uint32_t>(bytes, 46);
  // 3: masks, which for 32 bits are nearly always those of the plain layout; others are refused.
  const bool plain_masks = compression == 3 && header.bits == 32 && bytes.size() >= 66 &&
                           load<std::uint32_t>(bytes, 54) == 0xff0000 &&
                           load<std::uint32_t>(bytes, 58) == 0xff00 &&
                           load<std::uint32_t>(bytes, 62) == 0xff;
  if (compression != 0 && !plain_masks) {
    return Error{Code::kUnimplemented, fmt::format("BMP with compression {}", compression)};
  }
  if (header.bits != 1 && header.bits != 4 && header.bits != 8 && header.bits != 24 &&
      header.bits != 32) {
    return Error{Code::kUnimplemented, fmt::format("BMP with {} bits a pixel", header.bits)};
  }
  if (header.width <= 0) return Error{Code::kDataLoss, "damaged BMP: no width"};
  TRY(check_pixels(limits, static_cast<std::uint64_t>(header.width),
                   static_cast<std::uint64_t>(header.height)));
  return header;
}

using Palette = std::array<std::array<std::uint8_t, 3>, 256>;

Result<Palette> read_palette(ImageBytes bytes, const Header& header) {
  Palette palette{};
  if (header.bits > 8) return palette;
  const std::size_t most = std::size_t{1} << header.bits;
  const std::size_t count =
      header.colours == 0 ? most : std::min<std::size_t>(header.colours, most);
  const std::size_t at = 14 + header.header_size;
  if (bytes.size() < at + 4 * count)
    return Error{Code::kDataLoss, "damaged BMP: cut short in the palette"};
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t c = 0; c < 3; ++c)
      palette[i][c] = static_cast<std::uint8_t>(bytes[at + 4 * i + 2 - c]);
  }
  return palette;
}

void decode_row(const std::byte* from, const Header& header, const Palette& palette,
                std::uint8_t* rgb) {
  const std::size_t width = static_cast<std::size_t>(header.width);
  if (header.bits >= 24) {
    const std::size_t step = header.bits / 8;
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t c = 0; c < 3; ++c)
        rgb[3 * x + c] = static_cast<std::uint8_t>(from[step * x + 2 - c]);
    }
    return;
  }
  for (std::size_t x = 0; x < width; ++x) {
    const std::size_t bit = x * header.bits;
    const unsigned shift = 8 - header.bits - static_cast<unsigned>(bit % 8);
    const unsigned index =
        (static_cast<unsigned>(from[bit / 8]) >> shift) & ((1U << header.bits) - 1);
    std::memcpy(rgb + 3 * x, palette[index].data(), 3);
  }
}

}  // namespace

Result<StoredInfo> bmp_info(ImageBytes bytes, const ImageLimits& limits) {
  const Header header = TRY(read_header(bytes, limits));
  return StoredInfo{static_cast<int>(header.width), static_cast<int>(header.height), 1};
}

Result<void> decode_bmp(ImageBytes bytes, const ImageLimits& limits, Image& image) {
  const Header header = TRY(read_header(bytes, limits));
  const Palette palette = TRY(read_palette(bytes, header));
  const std::uint64_t row = (static_cast<std::uint64_t>(header.width) * header.bits + 31) / 32 * 4;
  if (header.pixels_at > bytes.size() ||
      (bytes.size() - header.pixels_at) / row < static_cast<std::uint64_t>(header.height)) {
    return Error{Code::kDataLoss, "damaged BMP: cut short"};
  }
  resize_pixels(image, static_cast<int>(header.width), static_cast<int>(header.height), 3);
  const std::byte* pixels = bytes.data() + header.pixels_at;
  for (std::int64_t y = 0; y < header.height; ++y) {
    const std::int64_t stored = header.top_down ? y : header.height - 1 - y;
    decode_row(pixels + static_cast<std::uint64_t>(stored) * row, header, palette,
               image.pixels.data() + static_cast<std::size_t>(y) * image.row_bytes());
  }
  return {};
}

}  // namespace atelier::vision
