#include "vision/training_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/file.h"
#include "base/rng.h"

namespace atelier::vision {
namespace {

constexpr std::size_t kMaxHeldOut = 5000;
// A fingerprint of contents reads every byte; beyond this, paths and sizes must do.
constexpr std::uint64_t kMaxFingerprintBytes = std::uint64_t{256} << 20;

Result<std::optional<ImageFolder>> open_channel(const JobFolders& folders, std::string_view name,
                                                const std::vector<std::string>& classes) {
  const auto path = folders.channel({name});
  if (!path) return std::optional<ImageFolder>{};
  Result<ImageFolder> folder = index_image_folder(*path, {.classes = classes});
  if (!folder) return folder.error().within(fmt::format("channel '{}'", name));
  return std::optional<ImageFolder>(*std::move(folder));
}

Result<void> check_counts(const Hyperparameters& h, TrainingData& data) {
  const std::size_t classes = data.train.classes.size();
  if (classes < 2) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("channel 'train' has {} class folder; it must have at least 2", classes)};
  }
  if (h.num_classes && static_cast<std::size_t>(*h.num_classes) != classes) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("hyperparameter 'num_classes' is {}; channel 'train' has {} class folders",
                    *h.num_classes, classes)};
  }
  if (h.num_training_samples &&
      static_cast<std::size_t>(*h.num_training_samples) != data.train.samples.size()) {
    data.warnings.push_back(
        fmt::format("num_training_samples is {}; there are {}, and that is used",
                    *h.num_training_samples, data.train.samples.size()));
  }
  return {};
}

}  // namespace

void hold_out(const ImageFolder& folder, double share, std::size_t limit,
              std::vector<std::uint32_t>& train, std::vector<std::uint32_t>& held_out) {
  const double possible = static_cast<double>(limit) / static_cast<double>(folder.samples.size());
  const double used = std::min(share, possible);
  std::vector<std::vector<std::uint32_t>> by_class(folder.classes.size());
  for (std::uint32_t i = 0; i < folder.samples.size(); ++i)
    by_class[folder.samples[i].label].push_back(i);
  constexpr std::uint64_t kFixedSeed = 20261130;
  for (std::size_t c = 0; c < by_class.size(); ++c) {
    const auto& members = by_class[c];
    const auto order = shuffled_order(members.size(), kFixedSeed, c);
    auto count = static_cast<std::size_t>(std::llround(used * static_cast<double>(members.size())));
    // Each class is seen on both sides when it has two pictures.
    if (members.size() >= 2) count = std::clamp<std::size_t>(count, 1, members.size() - 1);
    for (std::size_t i = 0; i < members.size(); ++i) {
      (i < count && members.size() >= 2 ? held_out : train).push_back(members[order[i]]);
    }
  }
  std::sort(train.begin(), train.end());
  std::sort(held_out.begin(), held_out.end());
}

Split TrainingData::split() const {
  Split split{&train, train_order, validation ? &*validation : &train, held_out};
  if (validation) {
    split.validation.resize(validation->samples.size());
    std::iota(split.validation.begin(), split.validation.end(), 0U);
  }
  return split;
}

std::vector<std::uint64_t> TrainingData::trained_counts() const {
  std::vector<std::uint64_t> counts(train.classes.size());
  for (const std::uint32_t i : train_order) ++counts[train.samples[i].label];
  return counts;
}

Result<TrainingData> open_training_data(const JobFolders& folders, const Hyperparameters& h) {
  const auto train = folders.channel({"train", "training"});
  if (!train) {
    return Error{Code::kNotFound, fmt::format("there is no channel 'train' (or 'training') in '{}'",
                                              (folders.root / "input" / "data").string())};
  }
  TrainingData data;
  Result<ImageFolder> indexed = index_image_folder(*train);
  if (!indexed) return indexed.error().within("channel 'train'");
  data.train = *std::move(indexed);
  TRY(check_counts(h, data));
  data.validation = TRY(open_channel(folders, "validation", data.train.classes));
  data.test = TRY(open_channel(folders, "test", data.train.classes));
  if (data.validation) {
    data.train_order.resize(data.train.samples.size());
    std::iota(data.train_order.begin(), data.train_order.end(), 0U);
  } else {
    hold_out(data.train, h.validation_split, kMaxHeldOut, data.train_order, data.held_out);
    data.warnings.push_back(
        fmt::format("no channel 'validation': {} of the {} training pictures are held out",
                    data.held_out.size(), data.train.samples.size()));
  }
  if (data.split().validation.empty() || data.train_order.size() < 2) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("{} pictures to train on and {} to validate with are too few",
                             data.train_order.size(), data.split().validation.size())};
  }
  std::uint64_t bytes = 0;
  for (const Sample& sample : data.train.samples) bytes += sample.bytes;
  data.fingerprint_of_contents = bytes <= kMaxFingerprintBytes;
  data.fingerprint = TRY(fingerprint(data.train, data.fingerprint_of_contents));
  for (const ImageFolder* folder : {&data.train, data.validation ? &*data.validation : nullptr,
                                    data.test ? &*data.test : nullptr}) {
    if (folder == nullptr) continue;
    data.warnings.insert(data.warnings.end(), folder->warnings.begin(), folder->warnings.end());
  }
  return data;
}

Result<int> suitable_image_size(const ImageFolder& folder) {
  constexpr std::size_t kLooked = 64;
  std::vector<int> sides;
  const std::size_t step = std::max<std::size_t>(1, folder.samples.size() / kLooked);
  for (std::size_t i = 0; i < folder.samples.size(); i += step) {
    const Result<std::string> bytes = read_file(folder.root / folder.samples[i].path);
    if (!bytes) continue;
    const Result<ImageInfo> info = read_image_info(std::as_bytes(std::span(*bytes)));
    if (info) sides.push_back(std::min(info->width, info->height));
  }
  if (sides.empty()) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("no picture of '{}' could be read", folder.root.string())};
  }
  std::nth_element(sides.begin(), sides.begin() + static_cast<std::ptrdiff_t>(sides.size() / 2),
                   sides.end());
  const int median = sides[sides.size() / 2];
  // 28-pixel pictures: 48 was measured best for their time
  // (docs/decisions/fashion-mnist-recipe.md).
  for (const int size : {48, 64, 96, 160}) {
    if (median <= size * 9 / 10) return size;
  }
  return 224;
}

}  // namespace atelier::vision
