#include "vision/training_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/file.h"
#include "base/rng.h"
#include "vision/listed_data.h"

namespace atelier::vision {
namespace {

constexpr std::size_t kMaxHeldOut = 5000;
// A fingerprint of contents reads every byte; beyond this, paths and sizes must do.
constexpr std::uint64_t kMaxFingerprintBytes = std::uint64_t{256} << 20;

Error refused(std::string what) { return Error{Code::kInvalidArgument, std::move(what)}; }

constexpr std::string_view kRecordIo = "application/x-recordio";

// A type that nothing here reads is a mistake that would show only later.
Result<void> check_content_type(const ChannelConfig& config) {
  constexpr std::array<std::string_view, 5> kKnown = {
      kRecordIo, "application/x-image", "image/jpeg", "image/png", "application/jsonlines"};
  if (!config.content_type.empty() &&
      std::ranges::find(kKnown, config.content_type) == kKnown.end()) {
    return refused(fmt::format("ContentType '{}'; it must be one of {}, or none",
                               config.content_type, fmt::join(kKnown, ", ")));
  }
  if (config.label_format.empty() || config.label_format == "multi-hot" ||
      config.label_format == "class-id") {
    return {};
  }
  return refused(fmt::format("ContentType has label-format={}; it must be multi-hot or class-id",
                             config.label_format));
}

// AttributeNames are the picture and its label, in this order; what is ours wins.
ManifestAttributes attributes_of(const ChannelConfig& config, const std::string& label) {
  ManifestAttributes attributes{.label = label};
  for (const std::string& name : config.attribute_names) {
    if (name.ends_with("-metadata")) continue;
    if (name.ends_with("-ref")) {
      attributes.picture = name;
    } else if (attributes.label.empty()) {
      attributes.label = name;
    }
  }
  return attributes;
}

Result<std::filesystem::path> only_file(const std::filesystem::path& folder,
                                        const std::string& words, std::string_view ending) {
  auto files = TRY(files_ending(folder, ending));
  if (files.size() == 1) return std::move(files.front());
  return refused(
      fmt::format("{} holds {} {} files; it must hold one", words, files.size(), ending));
}

// The pictures of a channel in whichever form they come. `listed`: the training pictures have a
// list, which the others then must have too.
Result<ImageFolder> open_form(const JobFolders& folders, const std::string& name,
                              const std::filesystem::path& path, ListOptions options, bool listed) {
  const ChannelConfig config = channel_config(folders, name);
  TRY(check_content_type(config));
  if (config.label_format == "class-id") options.label_format = LabelFormat::kClassId;
  options.attributes = attributes_of(config, options.attributes.label);
  if (!config.attribute_names.empty()) {
    return open_manifest(path, path.string() + "-manifest", options);
  }
  const bool has_records = !TRY(files_ending(path, ".rec")).empty();
  if (config.content_type == kRecordIo || (config.content_type.empty() && has_records)) {
    return open_records(path, options);
  }
  if (const auto list_channel = folders.channel({name + "_lst"})) {
    const auto list = TRY(only_file(*list_channel, fmt::format("channel '{}_lst'", name), ".lst"));
    return open_lst(path, list, options);
  }
  if (!TRY(files_ending(path, ".manifest")).empty()) {
    return open_manifest(path, TRY(only_file(path, "it", ".manifest")), options);
  }
  if (listed) {
    return refused(
        fmt::format("there is no channel '{}_lst'; the training pictures have a list, "
                    "so these must have one as well",
                    name));
  }
  if (options.multi_label) {
    return refused(
        fmt::format("with multi_label=1 labels come from a channel '{}_lst', a manifest "
                    "or RecordIO; class folders give one label each",
                    name));
  }
  return index_image_folder(path, {.classes = options.classes});
}

Result<std::optional<ImageFolder>> open_channel(const JobFolders& folders,
                                                std::initializer_list<std::string_view> names,
                                                const ListOptions& options, bool listed = false) {
  const auto path = folders.channel(names);
  if (!path) return std::optional<ImageFolder>{};
  const std::string name = path->filename().string();
  Result<ImageFolder> folder = open_form(folders, name, *path, options, listed);
  if (!folder) return folder.error().within(fmt::format("channel '{}'", name));
  return std::optional<ImageFolder>(*std::move(folder));
}

Result<void> check_counts(const Hyperparameters& h, TrainingData& data) {
  const std::size_t classes = data.train.classes.size();
  if (classes < 2) {
    return Error{Code::kInvalidArgument,
                 fmt::format("channel 'train' has {} class; it must have at least 2", classes)};
  }
  if (h.num_classes && static_cast<std::size_t>(*h.num_classes) != classes) {
    return Error{Code::kInvalidArgument,
                 fmt::format("hyperparameter 'num_classes' is {}; channel 'train' has {} classes",
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
  for (const std::uint32_t i : train_order) {
    if (!train.multi_label) ++counts[train.samples[i].label];
    if (!train.multi_label) continue;
    for (const std::uint32_t label : train.label_sets[i]) ++counts[label];
  }
  return counts;
}

Result<TrainingData> open_training_data(const JobFolders& folders, const Hyperparameters& h) {
  ListOptions options;
  options.multi_label = h.multi_label;
  options.attributes.label = h.label_attribute;
  if (h.num_classes) options.num_classes = static_cast<std::size_t>(*h.num_classes);
  std::optional<ImageFolder> train = TRY(open_channel(folders, {"train", "training"}, options));
  if (!train) {
    return Error{Code::kNotFound, fmt::format("there is no channel 'train' (or 'training') in '{}'",
                                              (folders.root / "input" / "data").string())};
  }
  TrainingData data;
  data.train = *std::move(train);
  TRY(check_counts(h, data));
  options.classes = data.train.classes;
  const bool listed = folders.channel({"train_lst", "training_lst"}).has_value();
  data.validation = TRY(open_channel(folders, {"validation"}, options, listed));
  data.test = TRY(open_channel(folders, {"test"}, options, listed));
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
  constexpr std::uint64_t kMaxLookedBytes = std::uint64_t{64} << 20;
  std::vector<std::byte> buffer;
  std::vector<int> sides;
  const std::size_t step = std::max<std::size_t>(1, folder.samples.size() / kLooked);
  for (std::size_t i = 0; i < folder.samples.size(); i += step) {
    const auto bytes = read_picture(folder, folder.samples[i], kMaxLookedBytes, buffer);
    if (!bytes) continue;
    const Result<ImageInfo> info = read_image_info(*bytes);
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
