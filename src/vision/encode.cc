#include "vision/encode.h"

// jpeglib.h needs FILE.
#include <cstdio>

#include <fmt/format.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdlib>
#include <cstring>

#include "vision/internal/font.h"
#include "vision/preprocess.h"

namespace atelier::vision {
namespace {

constexpr int kGap = 8;          // between the tiles of a sheet
constexpr int kLineHeight = 10;  // of captions
constexpr int kTitleHeight = 24;

Result<void> check_image(const Image& image) {
  const std::size_t wanted =
      image.row_bytes() * static_cast<std::size_t>(std::max(image.height, 0));
  if (image.width <= 0 || image.height <= 0 || (image.channels != 1 && image.channels != 3) ||
      image.pixels.size() != wanted || image.width > JPEG_MAX_DIMENSION ||
      image.height > JPEG_MAX_DIMENSION) {
    return Error{Code::kInvalidArgument,
                 fmt::format("cannot encode a picture of {}x{}x{} with {} bytes", image.width,
                             image.height, image.channels, image.pixels.size())};
  }
  return {};
}

// Errors of libpng and libjpeg arrive by longjmp; what lives across one is in these.
struct PngJob {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string* out = nullptr;
  const Image* image = nullptr;
  int level = 0;
};

bool write_png(PngJob& job) {
  if (setjmp(png_jmpbuf(job.png)) != 0) return false;  // NOLINT: the only way out of libpng
  png_set_write_fn(
      job.png, job.out,
      [](png_structp png, png_bytep bytes, std::size_t size) {
        static_cast<std::string*>(png_get_io_ptr(png))
            ->append(reinterpret_cast<const char*>(bytes), size);
      },
      [](png_structp) {});
  const Image& image = *job.image;
  png_set_compression_level(job.png, job.level);
  png_set_IHDR(job.png, job.info, static_cast<png_uint_32>(image.width),
               static_cast<png_uint_32>(image.height), 8,
               image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(job.png, job.info);
  for (int y = 0; y < image.height; ++y) {
    png_write_row(job.png, image.pixels.data() + static_cast<std::size_t>(y) * image.row_bytes());
  }
  png_write_end(job.png, nullptr);
  return true;
}

struct JpegJob {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf escape{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  const Image* image = nullptr;
  int quality = 0;
};

bool write_jpeg(JpegJob& job) {
  if (setjmp(job.escape) != 0) return false;  // NOLINT: the only way out of libjpeg
  const Image& image = *job.image;
  jpeg_create_compress(&job.info);
  jpeg_mem_dest(&job.info, &job.bytes, &job.size);
  job.info.image_width = static_cast<JDIMENSION>(image.width);
  job.info.image_height = static_cast<JDIMENSION>(image.height);
  job.info.input_components = image.channels;
  job.info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&job.info);
  jpeg_set_quality(&job.info, job.quality, TRUE);
  jpeg_start_compress(&job.info, TRUE);
  while (job.info.next_scanline < job.info.image_height) {
    auto* row =
        const_cast<JSAMPROW>(image.pixels.data() + job.info.next_scanline * image.row_bytes());
    jpeg_write_scanlines(&job.info, &row, 1);
  }
  jpeg_finish_compress(&job.info);
  return true;
}

void put_pixel(Image& image, int x, int y, Colour colour) {
  if (x < 0 || y < 0 || x >= image.width || y >= image.height) return;
  std::uint8_t* pixel =
      &image.pixels[static_cast<std::size_t>(y) * image.row_bytes() +
                    static_cast<std::size_t>(x) * static_cast<std::size_t>(image.channels)];
  std::memcpy(pixel, colour.data(), static_cast<std::size_t>(image.channels));
}

// Drops what follows the first byte of each UTF-8 sequence, so that a sequence takes one cell.
std::string one_byte_each(std::string_view text) {
  std::string cells;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0U) != 0x80U) cells += c;
  }
  return cells;
}

Image to_rgb(const Image& image) {
  if (image.channels == 3) return image;
  Image rgb{image.width, image.height, 3, std::vector<std::uint8_t>(image.pixels.size() * 3)};
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    std::memset(&rgb.pixels[3 * i], image.pixels[i], 3);
  return rgb;
}

// `picture` scaled so that it just fits into width x height.
Image fit(const Image& picture, int width, int height) {
  const double scale = std::min(static_cast<double>(width) / picture.width,
                                static_cast<double>(height) / picture.height);
  Preprocess spec;
  spec.mode = ResizeMode::kSquash;
  spec.interpolation = Interpolation::kBicubic;
  spec.width = std::clamp(static_cast<int>(picture.width * scale + 0.5), 1, width);
  spec.height = std::clamp(static_cast<int>(picture.height * scale + 0.5), 1, height);
  const Image rgb = to_rgb(picture);
  return std::move(render_view(rgb, spec, eval_view(spec, rgb.width, rgb.height))).value();
}

void paste(Image& sheet, const Image& picture, int x, int y) {
  for (int row = 0; row < picture.height; ++row) {
    std::memcpy(&sheet.pixels[static_cast<std::size_t>(y + row) * sheet.row_bytes() +
                              static_cast<std::size_t>(x) * 3],
                &picture.pixels[static_cast<std::size_t>(row) * picture.row_bytes()],
                picture.row_bytes());
  }
}

std::string shorten(std::string_view text, int width) {
  std::string cells = one_byte_each(text);
  const auto most = static_cast<std::size_t>(width / 6);
  if (cells.size() <= most) return cells;
  cells.resize(most > 2 ? most - 2 : 0);
  return cells + "..";
}

void draw_tile(Image& sheet, const Tile& tile, int x, int y, const SheetOptions& options) {
  fill_rect(sheet, {x - 2, y - 2, options.tile_width + 4, options.tile_height + 4}, tile.frame);
  fill_rect(sheet, {x, y, options.tile_width, options.tile_height}, {245, 245, 245});
  if (tile.picture.width > 0 && tile.picture.height > 0) {
    const Image fitted = fit(tile.picture, options.tile_width, options.tile_height);
    paste(sheet, fitted, x + (options.tile_width - fitted.width) / 2,
          y + (options.tile_height - fitted.height) / 2);
  }
  int line = y + options.tile_height + 5;
  for (const std::string& caption : tile.captions) {
    draw_text(sheet, x, line, shorten(caption, options.tile_width), {40, 40, 40});
    line += kLineHeight;
  }
}

}  // namespace

Result<std::string> encode_png(const Image& image, int level) {
  TRY(check_image(image));
  std::string out;
  PngJob job;
  job.out = &out;
  job.image = &image;
  job.level = std::clamp(level, 0, 9);
  job.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  if (job.png == nullptr) return Error{Code::kResourceExhausted, "no memory for a PNG"};
  job.info = png_create_info_struct(job.png);
  const bool written = job.info != nullptr && write_png(job);
  png_destroy_write_struct(&job.png, &job.info);
  if (!written) return Error{Code::kInternal, "libpng could not encode a picture"};
  return out;
}

Result<std::string> encode_jpeg(const Image& image, int quality) {
  TRY(check_image(image));
  JpegJob job;
  job.image = &image;
  job.quality = std::clamp(quality, 1, 100);
  job.info.err = jpeg_std_error(&job.errors);
  job.info.client_data = &job;
  job.errors.error_exit = [](j_common_ptr info) {
    auto* failed = static_cast<JpegJob*>(info->client_data);
    (*info->err->format_message)(info, failed->message.data());
    std::longjmp(failed->escape, 1);
  };
  const bool written = write_jpeg(job);
  std::string out;
  if (written) out.assign(reinterpret_cast<const char*>(job.bytes), job.size);
  jpeg_destroy_compress(&job.info);
  std::free(job.bytes);  // NOLINT: malloc'd by libjpeg
  if (!written)
    return Error{Code::kInternal,
                 fmt::format("libjpeg could not encode a picture: {}", job.message.data())};
  return out;
}

int text_width(std::string_view text, int scale) {
  return static_cast<int>(one_byte_each(text).size()) * 6 * scale;
}

void draw_text(Image& image, int x, int y, std::string_view text, Colour colour, int scale) {
  for (const char c : one_byte_each(text)) {
    const bool known = c >= kFirstGlyph && c <= kLastGlyph;
    const Glyph& glyph = known ? kGlyphs[static_cast<std::size_t>(c - kFirstGlyph)] : kUnknownGlyph;
    for (int dot = 0; dot < 5 * 8 * scale * scale; ++dot) {
      const int column = dot % (5 * scale);
      const int row = dot / (5 * scale);
      if ((glyph[static_cast<std::size_t>(column / scale)] >> (row / scale) & 1) != 0) {
        put_pixel(image, x + column, y + row, colour);
      }
    }
    x += 6 * scale;
  }
}

void fill_rect(Image& image, const Rect& rect, Colour colour) {
  for (int y = std::max(rect.y, 0); y < std::min(rect.y + rect.height, image.height); ++y) {
    for (int x = std::max(rect.x, 0); x < std::min(rect.x + rect.width, image.width); ++x)
      put_pixel(image, x, y, colour);
  }
}

Image contact_sheet(std::span<const Tile> tiles, const SheetOptions& options) {
  std::size_t lines = 0;
  for (const Tile& tile : tiles) lines = std::max(lines, tile.captions.size());
  const int columns = std::max(
      1, std::min(options.columns, static_cast<int>(std::max<std::size_t>(tiles.size(), 1))));
  const int rows = (static_cast<int>(tiles.size()) + columns - 1) / columns;
  const int cell_width = options.tile_width + kGap;
  const int cell_height = options.tile_height + 6 + static_cast<int>(lines) * kLineHeight + kGap;
  const int head = options.title.empty() ? 0 : kTitleHeight;
  Image sheet{
      .width = std::max(kGap + columns * cell_width, 2 * kGap + text_width(options.title, 2)),
      .height = kGap + head + rows * cell_height};
  sheet.pixels.assign(sheet.row_bytes() * static_cast<std::size_t>(sheet.height), 255);
  draw_text(sheet, kGap, kGap, options.title, {20, 20, 20}, 2);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const int column = static_cast<int>(i) % columns;
    const int row = static_cast<int>(i) / columns;
    draw_tile(sheet, tiles[i], kGap + column * cell_width, kGap + head + row * cell_height,
              options);
  }
  return sheet;
}

}  // namespace atelier::vision
