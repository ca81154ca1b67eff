#include <fmt/format.h>
#include <png.h>

#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "vision/internal/codecs.h"

namespace atelier::vision {
namespace {

constexpr std::size_t kSignature = 8;

std::uint32_t big_endian(ImageBytes bytes, std::size_t at) {
  std::uint32_t value;
  std::memcpy(&value, bytes.data() + at, 4);
  return std::endian::native == std::endian::little ? __builtin_bswap32(value) : value;
}

// Errors of libpng arrive by longjmp, so this is trivially destructible.
struct Job {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const std::byte* next = nullptr;
  std::size_t left = 0;
  std::array<char, 128> message{};
  Image* image = nullptr;
  std::uint8_t* rows = nullptr;  // where libpng writes
  std::size_t row_bytes = 0;
  png_uint_32 height = 0;
  int channels = 0;
  int passes = 1;
};

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  auto* job = static_cast<Job*>(png_get_error_ptr(png));
  std::strncpy(job->message.data(), text, job->message.size() - 1);
  png_longjmp(png, 1);
}
void on_warning(png_structp, png_const_charp) {
}  // odd metadata; pixels that cannot be trusted are errors

void on_read(png_structp png, png_bytep out, std::size_t size) {
  auto* job = static_cast<Job*>(png_get_io_ptr(png));
  if (job->left < size) png_error(png, "cut short");
  std::memcpy(out, job->next, size);
  job->next += size;
  job->left -= size;
}

template <typename Step>
bool run(Job& job, Step step) {
  if (setjmp(png_jmpbuf(job.png)) != 0) return false;  // NOLINT: the only way out of libpng
  step(job);
  return true;
}

void read_head(Job& job) {
  png_set_read_fn(job.png, &job, on_read);
  // Metadata is not needed, and compressed metadata is the usual bomb.
  png_set_keep_unknown_chunks(job.png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
  static const std::array<png_byte, 30> kIgnored = {'i', 'C', 'C', 'P', 0, 'i', 'T', 'X', 't', 0,
                                                    't', 'E', 'X', 't', 0, 'z', 'T', 'X', 't', 0,
                                                    'e', 'X', 'I', 'f', 0, 's', 'P', 'L', 'T', 0};
  png_set_keep_unknown_chunks(job.png, PNG_HANDLE_CHUNK_NEVER, kIgnored.data(), 6);
  png_set_user_limits(job.png, 0x7fffffff, 0x7fffffff);  // check_pixels has looked
  png_set_crc_action(job.png, PNG_CRC_ERROR_QUIT, PNG_CRC_QUIET_USE);
  png_read_info(job.png, job.info);
  png_set_expand(job.png);    // palettes to RGB, 1, 2 and 4 bits to 8, transparent colours to alpha
  png_set_strip_16(job.png);  // by dropping the lower byte
  job.passes = png_set_interlace_handling(job.png);
  png_read_update_info(job.png, job.info);
  job.channels = png_get_channels(job.png, job.info);
  job.height = png_get_image_height(job.png, job.info);
  job.row_bytes = png_get_rowbytes(job.png, job.info);
}

void read_rows(Job& job) {
  for (int pass = 0; pass < job.passes; ++pass) {
    for (png_uint_32 y = 0; y < job.height; ++y)
      png_read_row(job.png, job.rows + y * job.row_bytes, nullptr);
  }
  png_read_end(job.png, nullptr);
}

Error failure(const Job& job) {
  return Error{Code::kDataLoss, fmt::format("damaged PNG: {}", job.message.data())};
}

Result<void> decode_with(Job& job, Image& image) {
  if (!run(job, read_head)) return failure(job);
  const auto width = static_cast<int>(png_get_image_width(job.png, job.info));
  const bool alpha = job.channels == 2 || job.channels == 4;
  std::vector<std::uint8_t> with_alpha;
  resize_pixels(image, width, static_cast<int>(job.height), job.channels < 3 ? 1 : 3);
  if (alpha) with_alpha.resize(job.row_bytes * job.height);
  job.rows = alpha ? with_alpha.data() : image.pixels.data();
  if (!run(job, read_rows)) return failure(job);
  if (alpha) flatten_alpha(with_alpha.data(), job.channels, image);
  return {};
}

}  // namespace

Result<StoredInfo> png_info(ImageBytes bytes, const ImageLimits& limits) {
  if (bytes.size() < 33 || std::memcmp(bytes.data() + 12, "IHDR", 4) != 0) {
    return Error{Code::kDataLoss, "damaged PNG: no header"};
  }
  const std::uint32_t width = big_endian(bytes, 16);
  const std::uint32_t height = big_endian(bytes, 20);
  TRY(check_pixels(limits, width, height));
  StoredInfo info{static_cast<int>(width), static_cast<int>(height), 1};
  // eXIf, if there is one before the pixels.
  for (std::size_t at = kSignature; bytes.size() - at >= 12;) {
    const std::uint32_t size = big_endian(bytes, at);
    const std::string_view type(reinterpret_cast<const char*>(bytes.data()) + at + 4, 4);
    if (type == "IDAT" || size > bytes.size() - at - 12) break;
    if (type == "eXIf") info.orientation = exif_orientation(bytes.subspan(at + 8, size));
    at += 12 + size;
  }
  return info;
}

Result<void> decode_png(ImageBytes bytes, const ImageLimits& limits, Image& image) {
  TRY(png_info(bytes, limits));
  Job job;
  job.next = bytes.data();
  job.left = bytes.size();
  job.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, on_error, on_warning);
  if (job.png == nullptr) return Error{Code::kResourceExhausted, "no memory for a PNG"};
  job.info = png_create_info_struct(job.png);
  Result<void> decoded = job.info != nullptr
                             ? decode_with(job, image)
                             : Result<void>(Error{Code::kResourceExhausted, "no memory for a PNG"});
  png_destroy_read_struct(&job.png, &job.info, nullptr);
  return decoded;
}

}  // namespace atelier::vision
