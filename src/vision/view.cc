// What of a picture is seen (torchvision's transforms, with draws by counter), and the specs as
// JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/rng.h"
#include "vision/preprocess.h"

namespace atelier::vision {
namespace {

constexpr int kMaxSide = 8192;

// The draws of one view, in a fixed order.
class Draws {
 public:
  explicit Draws(const Draw& draw) : seed_(rng(draw.seed, draw.epoch, draw.index)) {}
  double uniform(double low, double high) {
    return low + (high - low) * rng_uniform(seed_, 0, next_++);
  }
  // 0 .. count-1
  int below(int count) { return std::min(static_cast<int>(uniform(0, count)), count - 1); }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

int scaled_other(int resize, int longer, int shorter) {
  // A picture of one row of millions would leave int.
  return static_cast<int>(std::min(static_cast<double>(resize) * longer / shorter, 1e9));
}

// Python's round(), half to even, of (outer - inner) / 2: where torchvision's CenterCrop begins.
int centre_offset(int outer, int inner) {
  return static_cast<int>(std::nearbyint((outer - inner) / 2.0));
}

// A box as RandomResizedCrop draws it: ten tries, then the largest centre box within the ratios.
Rect random_box(const Augmentation& augmentation, Draws& draws, int width, int height) {
  const double area = static_cast<double>(width) * height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * draws.uniform(augmentation.scale[0], augmentation.scale[1]);
    const double ratio =
        std::exp(draws.uniform(std::log(augmentation.ratio[0]), std::log(augmentation.ratio[1])));
    const double w = std::nearbyint(std::sqrt(target * ratio));
    const double h = std::nearbyint(std::sqrt(target / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const int box_width = static_cast<int>(w);
    const int box_height = static_cast<int>(h);
    const int y = draws.below(height - box_height + 1);
    return {draws.below(width - box_width + 1), y, box_width, box_height};
  }
  const double ratio = static_cast<double>(width) / height;
  int w = width;
  int h = height;
  if (ratio < augmentation.ratio[0])
    h = std::clamp(static_cast<int>(std::nearbyint(w / augmentation.ratio[0])), 1, height);
  if (ratio > augmentation.ratio[1])
    w = std::clamp(static_cast<int>(std::nearbyint(h * augmentation.ratio[1])), 1, width);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

void translate(const Preprocess& spec, const Augmentation& augmentation, Draws& draws, View& view) {
  const double share = augmentation.translate;
  const auto shift = [&](int at, int side, int room) {
    return std::clamp(at + static_cast<int>(std::nearbyint(draws.uniform(-share, share) * side)), 0,
                      room);
  };
  view.left = shift(view.left, spec.width, view.scaled_width - spec.width);
  view.top = shift(view.top, spec.height, view.scaled_height - spec.height);
}

Error out_of_range(std::string_view name, double value, std::string_view range) {
  return Error{Code::kInvalidArgument, fmt::format("{} is {}, it must be {}", name, value, range)};
}

Result<void> check_range(std::string_view name, const std::array<double, 2>& range, double least,
                         double most) {
  if (!(range[0] >= least && range[0] <= range[1] && range[1] <= most && range[0] > 0)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{} is [{}, {}], it must rise within {} and {}", name, range[0],
                             range[1], least, most)};
  }
  return {};
}

template <std::size_t N>
Result<std::array<float, N>> read_floats(const json::value& value, std::string_view name) {
  const json::array* list = find_array(value, name);
  std::array<float, N> floats{};
  if (list == nullptr || list->size() != N) {
    return Error{Code::kInvalidArgument,
                 fmt::format("preprocess: '{}' must be {} numbers", name, N)};
  }
  for (std::size_t i = 0; i < N; ++i) {
    if (!(*list)[i].is_number())
      return Error{Code::kInvalidArgument, fmt::format("preprocess: '{}' holds no number", name)};
    floats[i] = static_cast<float>((*list)[i].to_number<double>());
  }
  return floats;
}

Result<int> read_side(const json::value& value, std::string_view name) {
  const std::optional<std::int64_t> side = find_int(value, name);
  if (!side || *side < 1 || *side > kMaxSide) {
    return Error{Code::kInvalidArgument,
                 fmt::format("preprocess: '{}' must be a count from 1 to {}", name, kMaxSide)};
  }
  return static_cast<int>(*side);
}

// The one of two words that the member holds.
Result<bool> read_choice(const json::value& value, std::string_view name, std::string_view yes,
                         std::string_view no) {
  const std::optional<std::string> word = find_string(value, name);
  if (!word || (*word != yes && *word != no)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("preprocess: '{}' must be '{}' or '{}'", name, yes, no)};
  }
  return *word == yes;
}

}  // namespace

Result<void> check_preprocess(const Preprocess& spec) {
  for (const auto& [name, side] :
       {std::pair("width", spec.width), std::pair("height", spec.height)}) {
    if (side < 1 || side > kMaxSide)
      return out_of_range(name, side, fmt::format("1 to {}", kMaxSide));
  }
  if (spec.mode == ResizeMode::kShorterSide &&
      (spec.resize < std::max(spec.width, spec.height) || spec.resize > kMaxSide)) {
    return out_of_range("resize", spec.resize,
                        fmt::format("at least the picture's {}, at most {}",
                                    std::max(spec.width, spec.height), kMaxSide));
  }
  if (spec.channels != 1 && spec.channels != 3)
    return out_of_range("channels", spec.channels, "1 or 3");
  for (std::size_t c = 0; c < 3; ++c) {
    if (!(spec.std[c] > 0) || !std::isfinite(spec.std[c]))
      return out_of_range("std", spec.std[c], "above 0");
    if (!std::isfinite(spec.mean[c])) return out_of_range("mean", spec.mean[c], "a number");
  }
  return {};
}

json::object preprocess_to_json(const Preprocess& spec) {
  return {{"width", spec.width},
          {"height", spec.height},
          {"mode", spec.mode == ResizeMode::kSquash ? "squash" : "shorter_side"},
          {"resize", spec.resize},
          {"interpolation", spec.interpolation == Interpolation::kBicubic ? "bicubic" : "bilinear"},
          {"channels", spec.channels},
          {"mean", json::array{spec.mean[0], spec.mean[1], spec.mean[2]}},
          {"std", json::array{spec.std[0], spec.std[1], spec.std[2]}},
          {"apply_orientation", spec.apply_orientation}};
}

Result<Preprocess> preprocess_from_json(const json::value& value) {
  Preprocess spec;
  spec.width = TRY(read_side(value, "width"));
  spec.height = TRY(read_side(value, "height"));
  spec.mode = TRY(read_choice(value, "mode", "squash", "shorter_side")) ? ResizeMode::kSquash
                                                                        : ResizeMode::kShorterSide;
  spec.resize = TRY(read_side(value, "resize"));
  spec.interpolation = TRY(read_choice(value, "interpolation", "bicubic", "bilinear"))
                           ? Interpolation::kBicubic
                           : Interpolation::kBilinear;
  spec.channels = TRY(read_side(value, "channels"));
  spec.mean = TRY(read_floats<3>(value, "mean"));
  spec.std = TRY(read_floats<3>(value, "std"));
  const std::optional<bool> upright = find_bool(value, "apply_orientation");
  if (!upright)
    return Error{Code::kInvalidArgument, "preprocess: 'apply_orientation' must be true or false"};
  spec.apply_orientation = *upright;
  TRY(check_preprocess(spec));
  return spec;
}

Result<void> check_augmentation(const Augmentation& augmentation) {
  TRY(check_range("scale", augmentation.scale, 0, 1));
  TRY(check_range("ratio", augmentation.ratio, 0.01, 100));
  for (const auto& [name, value] :
       {std::pair("flip", augmentation.flip), std::pair("translate", augmentation.translate),
        std::pair("brightness", augmentation.brightness),
        std::pair("contrast", augmentation.contrast),
        std::pair("saturation", augmentation.saturation)}) {
    if (!(value >= 0 && value <= 1)) return out_of_range(name, value, "0 to 1");
  }
  return {};
}

json::object augmentation_to_json(const Augmentation& augmentation) {
  return {{"random_crop", augmentation.random_crop},
          {"scale", json::array{augmentation.scale[0], augmentation.scale[1]}},
          {"ratio", json::array{augmentation.ratio[0], augmentation.ratio[1]}},
          {"flip", augmentation.flip},
          {"translate", augmentation.translate},
          {"brightness", augmentation.brightness},
          {"contrast", augmentation.contrast},
          {"saturation", augmentation.saturation}};
}

View eval_view(const Preprocess& spec, int source_width, int source_height) {
  View view{.crop = {0, 0, source_width, source_height},
            .scaled_width = spec.width,
            .scaled_height = spec.height};
  if (spec.mode == ResizeMode::kSquash) return view;
  if (source_width <= source_height) {
    view.scaled_width = spec.resize;
    view.scaled_height = scaled_other(spec.resize, source_height, source_width);
  } else {
    view.scaled_width = scaled_other(spec.resize, source_width, source_height);
    view.scaled_height = spec.resize;
  }
  view.left = centre_offset(view.scaled_width, spec.width);
  view.top = centre_offset(view.scaled_height, spec.height);
  return view;
}

View random_view(const Preprocess& spec, const Augmentation& augmentation, const Draw& draw,
                 int source_width, int source_height) {
  Draws draws(draw);
  View view = eval_view(spec, source_width, source_height);
  if (augmentation.random_crop) {
    view = {.crop = random_box(augmentation, draws, source_width, source_height),
            .scaled_width = spec.width,
            .scaled_height = spec.height};
  } else {
    translate(spec, augmentation, draws, view);
  }
  view.flip = draws.uniform(0, 1) < augmentation.flip;
  const auto factor = [&](double range) {
    return static_cast<float>(draws.uniform(1 - range, 1 + range));
  };
  view.brightness = factor(augmentation.brightness);
  view.contrast = factor(augmentation.contrast);
  view.saturation = factor(augmentation.saturation);
  return view;
}

}  // namespace atelier::vision
