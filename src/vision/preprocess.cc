#include "vision/preprocess.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "vision/internal/resample.h"

namespace atelier::vision {
namespace {

// A view as it reads the decoded pixels.
struct Plan {
  AxisPlan horizontal;
  AxisPlan vertical;
  Rect region;  // of the picture, that the view reads
};

Plan make_plan(const Preprocess& spec, const View& view, Scratch& scratch) {
  Plan plan;
  plan.horizontal = plan_axis(spec.interpolation, view.crop.width, view.scaled_width, view.left,
                              spec.width, scratch.horizontal_begins, scratch.horizontal_weights);
  plan.vertical = plan_axis(spec.interpolation, view.crop.height, view.scaled_height, view.top,
                            spec.height, scratch.vertical_begins, scratch.vertical_weights);
  plan.region = {view.crop.x + plan.horizontal.source_first,
                 view.crop.y + plan.vertical.source_first,
                 plan.horizontal.source_end - plan.horizontal.source_first,
                 plan.vertical.source_end - plan.vertical.source_first};
  return plan;
}

std::size_t padded_row(const Preprocess& spec) {
  const auto bytes = static_cast<std::size_t>(spec.width) * static_cast<std::size_t>(spec.channels);
  return (bytes + kRowSlack + 63) / 64 * 64;
}

// Bytes that the kernel may read behind the last pixel that it needs.
std::size_t over_read(const Plan& plan, const Preprocess& spec) {
  return static_cast<std::size_t>(plan.horizontal.taps) * static_cast<std::size_t>(spec.channels) +
         kRowSlack;
}

// First pass: the rows of plan.region become rows of spec.width pixels in scratch.rows. `held` is
// what `image` has of the picture.
void shrink_rows(const Image& image, const Rect& held, const Preprocess& spec, const View& view,
                 const Plan& plan, Scratch& scratch) {
  const ResampleKernel& kernel = best_kernel();
  const std::size_t stride = padded_row(spec);
  scratch.rows.resize(stride * (static_cast<std::size_t>(plan.region.height) + kTapGroup));
  const int row_first = held.x - view.crop.x;  // in the crop's coordinates
  const auto rows_held = static_cast<std::size_t>(plan.region.y - held.y);
  const std::uint8_t* row = image.pixels.data() + rows_held * image.row_bytes();
  const auto shrink = [&](const std::uint8_t* from, int first, int rows) {
    kernel.horizontal(from, image.row_bytes(), rows, plan.horizontal, row_first, spec.width,
                      spec.channels, view.flip,
                      scratch.rows.data() + static_cast<std::size_t>(first) * stride, stride);
  };
  // The kernel reads behind a row's end, which must not be behind the picture's.
  const std::size_t left = image.pixels.size() - rows_held * image.row_bytes();
  const std::size_t over = over_read(plan, spec);
  const int in_place =
      static_cast<int>(std::min(static_cast<std::size_t>(plan.region.height),
                                left > over ? (left - over) / image.row_bytes() : 0));
  shrink(row, 0, in_place);
  const int rest = plan.region.height - in_place;
  if (rest == 0) return;
  const std::size_t bytes = image.row_bytes() * static_cast<std::size_t>(rest);
  scratch.last_rows.resize(bytes + over);
  std::memcpy(scratch.last_rows.data(),
              row + static_cast<std::size_t>(in_place) * image.row_bytes(), bytes);
  shrink(scratch.last_rows.data(), in_place, rest);
}

struct Affine {
  std::array<float, 3> scale;
  std::array<float, 3> bias;
};
Affine normalisation(const Preprocess& spec) {
  Affine affine{};
  for (std::size_t c = 0; c < 3; ++c) {
    affine.scale[c] = 1.0F / (255.0F * spec.std[c]);
    affine.bias[c] = -spec.mean[c] / spec.std[c];
  }
  return affine;
}

int taps_within(const AxisPlan& plan, std::size_t output) {
  return std::min(plan.taps, plan.source_end - plan.begins[output]);
}

// Second pass, to floats.
void finish_floats(const Preprocess& spec, const Plan& plan, const Scratch& scratch,
                   std::span<float> out) {
  const Affine affine = normalisation(spec);
  const std::size_t stride = padded_row(spec);
  const auto values =
      static_cast<std::size_t>(spec.width) * static_cast<std::size_t>(spec.channels);
  for (std::size_t y = 0; y < static_cast<std::size_t>(spec.height); ++y) {
    const auto first =
        static_cast<std::size_t>(plan.vertical.begins[y] - plan.vertical.source_first);
    best_kernel().vertical_normalised(scratch.rows.data() + first * stride, stride,
                                      plan.vertical.weights_of(y), taps_within(plan.vertical, y),
                                      values, spec.channels, affine.scale.data(),
                                      affine.bias.data(), out.data() + y * values);
  }
}

// Second pass, to bytes, in scratch.window without padding.
void finish_bytes(const Preprocess& spec, const Plan& plan, Scratch& scratch) {
  const std::size_t stride = padded_row(spec);
  const auto values =
      static_cast<std::size_t>(spec.width) * static_cast<std::size_t>(spec.channels);
  scratch.window.resize(values * static_cast<std::size_t>(spec.height) + kRowSlack);
  for (std::size_t y = 0; y < static_cast<std::size_t>(spec.height); ++y) {
    const auto first =
        static_cast<std::size_t>(plan.vertical.begins[y] - plan.vertical.source_first);
    best_kernel().vertical(scratch.rows.data() + first * stride, stride,
                           plan.vertical.weights_of(y), taps_within(plan.vertical, y), values,
                           scratch.window.data() + y * values);
  }
}

float luma(const std::uint8_t* rgb) {
  return 0.299F * static_cast<float>(rgb[0]) + 0.587F * static_cast<float>(rgb[1]) +
         0.114F * static_cast<float>(rgb[2]);
}
std::uint8_t blend(float a, float b, float factor) {
  return static_cast<std::uint8_t>(
      std::clamp(a * factor + b * (1.0F - factor) + 0.5F, 0.0F, 255.0F));
}

// Brightness, contrast, saturation, in this order, as PIL's ImageEnhance defines them.
void jitter_colours(const Preprocess& spec, const View& view, std::vector<std::uint8_t>& window) {
  const auto channels = static_cast<std::size_t>(spec.channels);
  const std::size_t pixels =
      static_cast<std::size_t>(spec.width) * static_cast<std::size_t>(spec.height);
  for (std::size_t i = 0; i < pixels * channels; ++i) {
    window[i] = blend(static_cast<float>(window[i]), 0.0F, view.brightness);
  }
  double total = 0;
  for (std::size_t i = 0; i < pixels; ++i)
    total += channels == 3 ? luma(&window[3 * i]) : static_cast<float>(window[i]);
  const auto gray = static_cast<float>(std::floor(total / static_cast<double>(pixels) + 0.5));
  for (std::size_t i = 0; i < pixels * channels; ++i) {
    window[i] = blend(static_cast<float>(window[i]), gray, view.contrast);
  }
  if (channels != 3) return;
  for (std::size_t i = 0; i < pixels; ++i) {
    const float own = std::floor(luma(&window[3 * i]) + 0.5F);
    for (std::size_t c = 0; c < 3; ++c) {
      window[3 * i + c] = blend(static_cast<float>(window[3 * i + c]), own, view.saturation);
    }
  }
}

bool has_jitter(const View& view) {
  return view.brightness != 1.0F || view.contrast != 1.0F || view.saturation != 1.0F;
}

void finish(const Preprocess& spec, const View& view, const Plan& plan, Scratch& scratch,
            std::span<float> out) {
  if (!has_jitter(view)) {
    finish_floats(spec, plan, scratch, out);
    return;
  }
  finish_bytes(spec, plan, scratch);
  jitter_colours(spec, view, scratch.window);
  const Affine affine = normalisation(spec);
  const auto channels = static_cast<std::size_t>(spec.channels);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float scaled = static_cast<float>(scratch.window[i]) * affine.scale[i % channels];
    out[i] = scaled + affine.bias[i % channels];
  }
}

Result<void> run(std::span<const std::byte> bytes, const Preprocess& spec,
                 const Augmentation* augmentation, const Draw& draw, std::span<float> out,
                 Scratch& scratch, const ImageLimits& limits) {
  if (out.size() != spec.output_floats()) {
    return Error{Code::kInvalidArgument, fmt::format("a buffer of {} floats for a picture of {}",
                                                     out.size(), spec.output_floats())};
  }
  const DecodeOptions options{
      .limits = limits, .apply_orientation = spec.apply_orientation, .channels = spec.channels};
  View view;
  Plan plan;
  const auto choose = [&](const ImageInfo& info) {
    view = augmentation != nullptr ? random_view(spec, *augmentation, draw, info.width, info.height)
                                   : eval_view(spec, info.width, info.height);
    plan = make_plan(spec, view, scratch);
    return plan.region;
  };
  const Region region =
      TRY(decode_region(bytes, options, RegionChoice(std::ref(choose)), scratch.image));
  shrink_rows(scratch.image, region.held, spec, view, plan, scratch);
  finish(spec, view, plan, scratch, out);
  return {};
}

}  // namespace

Result<void> preprocess(std::span<const std::byte> bytes, const Preprocess& spec,
                        std::span<float> out, Scratch& scratch, const ImageLimits& limits) {
  return run(bytes, spec, nullptr, {}, out, scratch, limits);
}

Result<void> preprocess_augmented(std::span<const std::byte> bytes, const Preprocess& spec,
                                  const Augmentation& augmentation, const Draw& draw,
                                  std::span<float> out, Scratch& scratch,
                                  const ImageLimits& limits) {
  return run(bytes, spec, &augmentation, draw, out, scratch, limits);
}

Result<Image> render_view(const Image& source, const Preprocess& spec, const View& view) {
  if (source.channels != spec.channels) {
    return Error{Code::kInvalidArgument, fmt::format("a picture of {} channels for a view of {}",
                                                     source.channels, spec.channels)};
  }
  Scratch scratch;
  const Plan plan = make_plan(spec, view, scratch);
  shrink_rows(source, {0, 0, source.width, source.height}, spec, view, plan, scratch);
  finish_bytes(spec, plan, scratch);
  if (has_jitter(view)) jitter_colours(spec, view, scratch.window);
  scratch.window.resize(spec.output_floats());
  return Image{spec.width, spec.height, spec.channels, std::move(scratch.window)};
}

std::string_view preprocess_kernel() { return best_kernel().name; }

}  // namespace atelier::vision
