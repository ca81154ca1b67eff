// libvips for the formats that are rare in training sets. It is loaded when the first such picture
// comes: it pulls in some sixty libraries, which every start of a program would otherwise pay for,
// and machines that only meet JPEG and PNG need not have it. Only the loader of the sniffed format
// is called, so its other loaders are out of reach.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>

#include "vision/internal/codecs.h"

namespace atelier::vision {
namespace {

struct VipsImage;  // opaque

// The functions of libvips' stable C interface that are used (libvips.so.42, since 8.0); prototypes
// as in vips/*.h.
struct Vips {
  using Load = int (*)(void*, std::size_t, VipsImage**, ...);
  int (*init)(const char*) = nullptr;
  void (*cache_set_max)(int) = nullptr;
  void (*concurrency_set)(int) = nullptr;
  Load webpload_buffer = nullptr;
  Load gifload_buffer = nullptr;
  Load tiffload_buffer = nullptr;
  int (*colourspace)(VipsImage*, VipsImage**, int, ...) = nullptr;
  int (*cast_uchar)(VipsImage*, VipsImage**, ...) = nullptr;
  int (*image_get_width)(const VipsImage*) = nullptr;
  int (*image_get_height)(const VipsImage*) = nullptr;
  int (*image_get_bands)(const VipsImage*) = nullptr;
  int (*image_get_orientation)(VipsImage*) = nullptr;
  void* (*image_write_to_memory)(VipsImage*, std::size_t*) = nullptr;
  const char* (*error_buffer)() = nullptr;
  void (*error_clear)() = nullptr;
  void (*g_object_unref)(void*) = nullptr;
  void (*g_free)(void*) = nullptr;
  std::string missing;  // why it cannot be used; empty when it can
};

constexpr int kInterpretationSrgb = 22;  // VIPS_INTERPRETATION_sRGB

Vips load_vips() {
  Vips vips;
  void* library = ::dlopen("libvips.so.42", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    vips.missing = "libvips (libvips.so.42, Debian package libvips42) is not installed";
    return vips;
  }
  const auto find = [&](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && vips.missing.empty())
      vips.missing = fmt::format("libvips lacks '{}'", name);
  };
  find(vips.init, "vips_init");
  find(vips.cache_set_max, "vips_cache_set_max");
  find(vips.concurrency_set, "vips_concurrency_set");
  find(vips.webpload_buffer, "vips_webpload_buffer");
  find(vips.gifload_buffer, "vips_gifload_buffer");
  find(vips.tiffload_buffer, "vips_tiffload_buffer");
  find(vips.colourspace, "vips_colourspace");
  find(vips.cast_uchar, "vips_cast_uchar");
  find(vips.image_get_width, "vips_image_get_width");
  find(vips.image_get_height, "vips_image_get_height");
  find(vips.image_get_bands, "vips_image_get_bands");
  find(vips.image_get_orientation, "vips_image_get_orientation");
  find(vips.image_write_to_memory, "vips_image_write_to_memory");
  find(vips.error_buffer, "vips_error_buffer");
  find(vips.error_clear, "vips_error_clear");
  find(vips.g_object_unref, "g_object_unref");
  find(vips.g_free, "g_free");
  if (vips.missing.empty() && vips.init("atelier") != 0) vips.missing = "libvips does not start";
  if (vips.missing.empty()) {
    vips.cache_set_max(0);    // pictures are read once
    vips.concurrency_set(1);  // we have threads of our own
  }
  return vips;
}

const Vips& vips() {
  static const Vips loaded = load_vips();
  return loaded;
}

struct Unref {
  void operator()(VipsImage* image) const { vips().g_object_unref(image); }
};
using Picture = std::unique_ptr<VipsImage, Unref>;

Error vips_failure(ImageFormat format) {
  std::string text = vips().error_buffer();
  vips().error_clear();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return Error{Code::kDataLoss,
               fmt::format("damaged {}: {}", format_name(format), text.substr(0, 200))};
}

Result<Picture> open_picture(ImageFormat format, ImageBytes bytes, const ImageLimits& limits) {
  if (!vips().missing.empty()) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("{}: {}", format_name(format), vips().missing)};
  }
  const Vips::Load load = format == ImageFormat::kWebp  ? vips().webpload_buffer
                          : format == ImageFormat::kGif ? vips().gifload_buffer
                                                        : vips().tiffload_buffer;
  VipsImage* raw = nullptr;
  // 3: VIPS_FAIL_ON_WARNING, so that a file that was cut short is an error and no grey picture.
  if (load(const_cast<std::byte*>(bytes.data()), bytes.size(), &raw, "fail_on", 3, nullptr) != 0) {
    return vips_failure(format);
  }
  Picture picture(raw);
  TRY(check_pixels(limits, static_cast<std::uint64_t>(vips().image_get_width(raw)),
                   static_cast<std::uint64_t>(vips().image_get_height(raw))));
  return picture;
}

}  // namespace

Result<StoredInfo> vips_info(ImageFormat format, ImageBytes bytes, const ImageLimits& limits) {
  const Picture picture = TRY(open_picture(format, bytes, limits));
  return StoredInfo{vips().image_get_width(picture.get()), vips().image_get_height(picture.get()),
                    vips().image_get_orientation(picture.get())};
}

Result<void> decode_vips(ImageFormat format, ImageBytes bytes, const ImageLimits& limits,
                         Image& image) {
  const Picture picture = TRY(open_picture(format, bytes, limits));
  VipsImage* raw = nullptr;
  if (vips().colourspace(picture.get(), &raw, kInterpretationSrgb, nullptr) != 0)
    return vips_failure(format);
  const Picture rgb(raw);
  if (vips().cast_uchar(rgb.get(), &raw, nullptr) != 0) return vips_failure(format);
  const Picture bytes_picture(raw);
  const int bands = vips().image_get_bands(raw);
  if (bands < 1 || bands > 4)
    return Error{Code::kUnimplemented, fmt::format("{} with {} bands", format_name(format), bands)};
  std::size_t size = 0;
  const std::unique_ptr<void, void (*)(void*)> pixels(vips().image_write_to_memory(raw, &size),
                                                      vips().g_free);
  if (!pixels) return vips_failure(format);
  resize_pixels(image, vips().image_get_width(raw), vips().image_get_height(raw),
                bands < 3 ? 1 : 3);
  const auto* from = static_cast<const std::uint8_t*>(pixels.get());
  if (bands == 2 || bands == 4) {
    flatten_alpha(from, bands, image);
  } else {
    std::memcpy(image.pixels.data(), from, image.pixels.size());
  }
  return {};
}

}  // namespace atelier::vision
