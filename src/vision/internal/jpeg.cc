// jpeglib.h needs FILE, and jerror.h needs jpeglib.h: without its macros the codes would have other
// numbers.
#include <cstdio>

#include <jpeglib.h>

#include <jerror.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <string_view>

#include "vision/internal/codecs.h"
#include "vision/internal/jpeg_entropy.h"

namespace atelier::vision {
namespace {

constexpr std::string_view kExifHead("Exif\0\0", 6);
// Columns beside the region that are decoded besides: the upsampling of colours looks at the
// neighbouring sample, which is two columns wide, and treats the edge of what is decoded as the
// edge of the picture. (libjpeg itself cares for the rows.)
int margin(const jpeg_decompress_struct& info) { return info.max_h_samp_factor > 1 ? 2 : 0; }

// Errors of libjpeg arrive by longjmp. Everything that lives across one is in here and trivially
// destructible, but for the Image, which the caller owns.
struct Job {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  bool damaged = false;  // `message` says how
  bool too_many_scans = false;
  std::uint64_t max_pixel_passes = 0;
  bool whole = true;
  Rect wanted;
  Rect held;
  Image* image = nullptr;
  JpegEntropy* entropy = nullptr;
};

Job* job_of(j_common_ptr info) { return static_cast<Job*>(info->client_data); }

[[noreturn]] void on_error(j_common_ptr info) {
  Job* job = job_of(info);
  if (!job->damaged) (*info->err->format_message)(info, job->message.data());
  std::longjmp(job->escape, 1);
}

// Warnings after which pixels are made up: those are damage. The others (bytes between markers, odd
// versions) are not.
bool means_damage(int code) {
  switch (code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_TOO_MUCH_DATA:
      return true;
    default:
      return false;
  }
}

void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  ++info->err->num_warnings;
  if (!means_damage(info->err->msg_code)) return;
  Job* job = job_of(info);
  (*info->err->format_message)(info, job->message.data());
  job->damaged = true;
  std::longjmp(job->escape, 1);
}

void on_progress(j_common_ptr common) {
  Job* job = job_of(common);
  const std::uint64_t pixels = std::uint64_t{job->info.image_width} * job->info.image_height;
  if (pixels * static_cast<std::uint64_t>(job->info.input_scan_number) > job->max_pixel_passes ||
      job->info.input_scan_number > 10'000) {
    job->too_many_scans = true;
    std::longjmp(job->escape, 1);
  }
}

boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
  Job* job = job_of(reinterpret_cast<j_common_ptr>(info));
  switch (job->entropy->decode(*info, blocks)) {
    case EntropyState::kFine:
      break;
    case EntropyState::kEndOfData:
      WARNMS(info, JWRN_HIT_MARKER);
      break;
    case EntropyState::kBadCode:
      WARNMS(info, JWRN_HUFF_BAD_CODE);
      break;
  }
  return TRUE;
}

Error failure(const Job& job) {
  if (job.too_many_scans) {
    return Error{Code::kResourceExhausted,
                 fmt::format("JPEG with too many scans ({})", job.info.input_scan_number)};
  }
  return Error{Code::kDataLoss, fmt::format("damaged JPEG: {}", job.message.data())};
}

// Owns a decompressor. `run` calls `step` and says whether it came back by itself.
class Decompressor {
 public:
  Decompressor() {
    job_.info.err = jpeg_std_error(&job_.errors);
    job_.errors.error_exit = on_error;
    job_.errors.emit_message = on_message;
    job_.info.client_data = &job_;
    made_ = run([](Job& job) { jpeg_create_decompress(&job.info); });
  }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  ~Decompressor() { jpeg_destroy_decompress(&job_.info); }

  template <typename Step>
  bool run(Step step) {
    if (setjmp(job_.escape) != 0) return false;  // NOLINT: the only way out of libjpeg
    step(job_);
    return true;
  }

  Result<void> read_header(ImageBytes bytes, const ImageLimits& limits) {
    job_.max_pixel_passes = limits.max_pixel_passes;
    input_ = bytes;
    const bool read =
        made_ && run([this](Job& job) {
          job.info.client_data = &job;
          job.progress.progress_monitor = on_progress;
          job.info.progress = &job.progress;
          jpeg_save_markers(&job.info, JPEG_APP0 + 1, 0xffff);
          jpeg_mem_src(&job.info, reinterpret_cast<const unsigned char*>(input_.data()),
                       input_.size());
          jpeg_read_header(&job.info, TRUE);
        });
    if (!read) return failure(job_);
    return check_pixels(limits, job_.info.image_width, job_.info.image_height);
  }

  Job& job() { return job_; }

 private:
  Job job_;
  ImageBytes input_;
  bool made_ = false;
};

int read_orientation(const jpeg_decompress_struct& info) {
  for (const jpeg_marker_struct* marker = info.marker_list; marker != nullptr;
       marker = marker->next) {
    const std::span<const std::byte> data(reinterpret_cast<const std::byte*>(marker->data),
                                          marker->data_length);
    if (marker->marker != JPEG_APP0 + 1 || data.size() < kExifHead.size() ||
        std::memcmp(data.data(), kExifHead.data(), kExifHead.size()) != 0) {
      continue;
    }
    return exif_orientation(data.subspan(kExifHead.size()));
  }
  return 1;
}

StoredInfo stored_info(const jpeg_decompress_struct& info) {
  return {static_cast<int>(info.image_width), static_cast<int>(info.image_height),
          read_orientation(info)};
}

// A file that was cut short has no end marker. Looked for first, because decoding only a region
// would not notice.
bool has_end_marker(const jpeg_decompress_struct& info) {
  const std::string_view rest(reinterpret_cast<const char*>(info.src->next_input_byte),
                              info.src->bytes_in_buffer);
  return rest.rfind("\xff\xd9") != std::string_view::npos;
}

// One scan, from top to bottom: then rows and columns outside of a region need no inverse
// transform.
bool can_skip(jpeg_decompress_struct& info) {
  return !info.progressive_mode && !jpeg_has_multiple_scans(&info) && info.num_components <= 3;
}

// CMYK to RGB as PIL does it. Adobe's files hold the complement of the ink.
void convert_cmyk_row(const JSAMPLE* cmyk, JDIMENSION width, bool inverted, std::uint8_t* rgb) {
  for (JDIMENSION x = 0; x < width; ++x) {
    const unsigned flip = inverted ? 0 : 255;
    const unsigned light = flip ^ cmyk[4 * x + 3];
    for (unsigned c = 0; c < 3; ++c) {
      const unsigned product = (flip ^ cmyk[4 * x + c]) * light + 128;
      rgb[3 * x + c] = static_cast<std::uint8_t>((product + (product >> 8)) >> 8);
    }
  }
}

void choose_colours(jpeg_decompress_struct& info) {
  switch (info.jpeg_color_space) {
    case JCS_GRAYSCALE:
      info.out_color_space = JCS_GRAYSCALE;
      break;
    case JCS_CMYK:
    case JCS_YCCK:
      info.out_color_space = JCS_CMYK;
      break;
    default:
      info.out_color_space = JCS_RGB;
      break;
  }
}

void start(Job& job) {
  choose_colours(job.info);
  job.whole = job.whole || !can_skip(job.info);
  jpeg_start_decompress(&job.info);
  job.held = {0, 0, static_cast<int>(job.info.output_width),
              static_cast<int>(job.info.output_height)};
  if (job.entropy != nullptr) job.entropy->take_over(job.info, decode_mcu);
  if (job.whole) return;
  const int right = std::min(job.held.width, job.wanted.x + job.wanted.width + margin(job.info));
  JDIMENSION x = static_cast<JDIMENSION>(std::max(0, job.wanted.x - margin(job.info)));
  JDIMENSION width = static_cast<JDIMENSION>(right) - x;
  if (width < job.info.output_width) {
    jpeg_crop_scanline(&job.info, &x, &width);  // moves x down to a block's edge
    job.held.x = static_cast<int>(x);
    job.held.width = static_cast<int>(width);
  }
  job.held.y = job.wanted.y;
  job.held.height = job.wanted.height;
  if (job.held.y > 0) jpeg_skip_scanlines(&job.info, static_cast<JDIMENSION>(job.held.y));
}

void read_rows(Job& job) {
  Image& image = *job.image;
  const auto end = static_cast<JDIMENSION>(job.held.y + job.held.height);
  const bool cmyk = job.info.out_color_space == JCS_CMYK;
  JSAMPARRAY strip = nullptr;
  if (cmyk) {
    strip = (*job.info.mem->alloc_sarray)(reinterpret_cast<j_common_ptr>(&job.info), JPOOL_IMAGE,
                                          job.info.output_width * 4, 1);
  }
  std::uint8_t* out = image.pixels.data();
  while (job.info.output_scanline < end) {
    if (cmyk) {
      jpeg_read_scanlines(&job.info, strip, 1);
      convert_cmyk_row(strip[0], job.info.output_width, job.info.saw_Adobe_marker != 0, out);
      out += image.row_bytes();
    } else {
      JSAMPROW row = out;
      out += image.row_bytes() * jpeg_read_scanlines(&job.info, &row, 1);
    }
  }
  if (job.info.output_scanline == job.info.output_height) {
    jpeg_finish_decompress(&job.info);  // reads to the end marker
  } else {
    jpeg_abort_decompress(&job.info);
  }
}

}  // namespace

Result<StoredInfo> jpeg_info(ImageBytes bytes, const ImageLimits& limits) {
  Decompressor decompressor;
  TRY(decompressor.read_header(bytes, limits));
  return stored_info(decompressor.job().info);
}

Result<Rect> decode_jpeg(ImageBytes bytes, const ImageLimits& limits, const StoredChoice& choose,
                         Image& image, HuffmanDecoder huffman) {
  JpegEntropy entropy;
  Decompressor decompressor;
  TRY(decompressor.read_header(bytes, limits));
  Job& job = decompressor.job();
  const std::optional<Rect> wanted = TRY(choose(stored_info(job.info)));
  if (!has_end_marker(job.info)) {
    return Error{Code::kDataLoss, "damaged JPEG: it has no end marker, so it was cut short"};
  }
  job.image = &image;
  job.entropy = huffman == HuffmanDecoder::kOwn ? &entropy : nullptr;
  job.whole = !wanted.has_value();
  if (wanted) job.wanted = *wanted;
  if (!decompressor.run(start)) return failure(job);
  resize_pixels(image, job.held.width, job.held.height,
                job.info.out_color_space == JCS_GRAYSCALE ? 1 : 3);
  if (!decompressor.run(read_rows)) return failure(job);
  return job.held;
}

}  // namespace atelier::vision
