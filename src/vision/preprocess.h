// From a picture to the numbers that a network sees. One Preprocess is stored with the model and
// used in training, validation and prediction alike, so that they cannot differ.
//
//   Preprocess spec;                                      // shorter side to 256, centre 224,
//   ImageNet mean and std std::vector<float> row(spec.output_floats()); TRY(preprocess(bytes, spec,
//   row, scratch));           // NHWC, float32
//
// Results agree with PIL's resize (antialiased) and torchvision's transforms within 1/255 before
// normalisation.
#pragma once

#include <array>
#include <boost/json/fwd.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vision/image.h"

namespace atelier::vision {

enum class ResizeMode {
  kShorterSide,  // keep the aspect, shorter side to `resize`, then the centre
  kSquash,       // straight to width x height
};
enum class Interpolation { kBilinear, kBicubic };

struct Preprocess {
  int width = 224;
  int height = 224;
  ResizeMode mode = ResizeMode::kShorterSide;
  int resize = 256;  // for kShorterSide; at least max(width, height)
  Interpolation interpolation = Interpolation::kBilinear;
  int channels = 3;  // 3: gray becomes RGB; 1: colour becomes luma
  std::array<float, 3> mean = {0.485F, 0.456F, 0.406F};  // of values in 0..1
  std::array<float, 3> std = {0.229F, 0.224F, 0.225F};
  bool apply_orientation = true;

  [[nodiscard]] std::size_t output_floats() const {
    return static_cast<std::size_t>(width) * static_cast<std::size_t>(height) *
           static_cast<std::size_t>(channels);
  }
  bool operator==(const Preprocess&) const = default;
};

Result<void> check_preprocess(const Preprocess& spec);
boost::json::object preprocess_to_json(const Preprocess& spec);
Result<Preprocess> preprocess_from_json(const boost::json::value& value);

// Random views for training. All draws come from (seed, epoch, index, view): the same picture in
// the same epoch looks the same, whichever thread decodes it and wherever a run was resumed.
struct Augmentation {
  bool random_crop =
      true;  // RandomResizedCrop: a box of `scale` of the area and `ratio` of the sides
  std::array<double, 2> scale = {0.08, 1.0};
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};
  double flip = 0.5;  // probability of a left-right flip
  double translate =
      0.0;  // without random_crop: shift of the centre crop by up to this share of each side
  double brightness = 0.0;  // each a factor drawn from [1 - x, 1 + x], as ColorJitter's
  double contrast = 0.0;
  double saturation = 0.0;
  bool operator==(const Augmentation&) const = default;
};
Result<void> check_augmentation(const Augmentation& augmentation);
boost::json::object augmentation_to_json(const Augmentation& augmentation);

struct Draw {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;  // of the sample in the data set, not its place in the batch
};

// Which part of the picture is seen and how: `crop` of the source is scaled to scaled_width x
// scaled_height, of which the window at (left, top) of the spec's size is kept, perhaps flipped.
struct View {
  Rect crop = {};
  int scaled_width = 0;
  int scaled_height = 0;
  int left = 0;
  int top = 0;
  bool flip = false;
  float brightness = 1.0F;
  float contrast = 1.0F;
  float saturation = 1.0F;
  bool operator==(const View&) const = default;
};
View eval_view(const Preprocess& spec, int source_width, int source_height);
View random_view(const Preprocess& spec, const Augmentation& augmentation, const Draw& draw,
                 int source_width, int source_height);

// Buffers of one thread, kept between calls so that nothing is allocated for a picture of an
// ordinary size.
struct Scratch {
  Image image;
  std::vector<std::uint8_t> last_rows;
  std::vector<std::uint8_t> rows;
  std::vector<std::uint8_t> window;
  std::vector<std::int16_t> horizontal_weights;
  std::vector<std::int16_t> vertical_weights;
  std::vector<std::int32_t> horizontal_begins;
  std::vector<std::int32_t> vertical_begins;
};

// Decodes `bytes` and writes the evaluation view to `out` (output_floats() values, row by row,
// channels innermost).
Result<void> preprocess(std::span<const std::byte> bytes, const Preprocess& spec,
                        std::span<float> out, Scratch& scratch, const ImageLimits& limits = {});

// The same with a random view.
Result<void> preprocess_augmented(std::span<const std::byte> bytes, const Preprocess& spec,
                                  const Augmentation& augmentation, const Draw& draw,
                                  std::span<float> out, Scratch& scratch,
                                  const ImageLimits& limits = {});

// A picture that is decoded already, as the 8-bit pixels of `view` (no normalisation): for contact
// sheets.
Result<Image> render_view(const Image& source, const Preprocess& spec, const View& view);

// "avx2" or "generic": which kernel this processor gets.
std::string_view preprocess_kernel();

}  // namespace atelier::vision
