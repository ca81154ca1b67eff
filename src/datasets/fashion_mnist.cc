// Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017): 70,000 pictures of 28 x 28 in ten classes.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/hash.h"
#include "datasets/import.h"
#include "datasets/internal/idx.h"
#include "datasets/internal/manifest.h"
#include "vision/encode.h"
#include "vision/image_folder.h"

namespace atelier::datasets {
namespace {

namespace fs = std::filesystem;

// By label. The set's own names are "T-shirt/top", "Trouser", ... "Ankle boot".
constexpr std::array<std::string_view, 10> kNames = {
    "t-shirt-top", "trouser", "pullover", "dress", "coat",
    "sandal",      "shirt",   "sneaker",  "bag",   "ankle-boot"};

struct Pictures {
  Idx images;
  Idx labels;
  [[nodiscard]] std::size_t count() const { return labels.values.size(); }
  [[nodiscard]] std::size_t label(std::size_t i) const {
    return static_cast<unsigned char>(labels.values[i]);
  }
};

Result<std::string> read_source(const fs::path& folder, const std::string& name) {
  for (const std::string& file : {name + ".gz", name}) {
    Result<std::string> bytes = read_file(folder / file, std::size_t{256} << 20);
    if (bytes || bytes.error().code != Code::kNotFound) return bytes;
  }
  return Error{Code::kNotFound, fmt::format("'{}' has neither '{}' nor '{}.gz'; on Debian and "
                                            "Ubuntu the package dataset-fashion-mnist has them",
                                            folder.string(), name, name)};
}

Result<Pictures> read_pictures(const fs::path& folder, const std::string& prefix, Hasher& hasher) {
  const std::string image_bytes = TRY(read_source(folder, prefix + "-images-idx3-ubyte"));
  const std::string label_bytes = TRY(read_source(folder, prefix + "-labels-idx1-ubyte"));
  hasher.update(image_bytes);
  hasher.update(label_bytes);
  Idx images = TRY(parse_idx(image_bytes));
  Idx labels = TRY(parse_idx(label_bytes));
  Pictures pictures{std::move(images), std::move(labels)};
  const auto& shape = pictures.images.shape;
  if (shape.size() != 3 || pictures.labels.shape.size() != 1 ||
      shape[0] != pictures.labels.shape[0] || shape[1] == 0 || shape[2] == 0 || shape[1] > 1024 ||
      shape[2] > 1024) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("'{}' in '{}' are not pictures with one label each", prefix, folder.string())};
  }
  for (std::size_t i = 0; i < pictures.count(); ++i) {
    if (pictures.label(i) >= kNames.size()) {
      return Error{Code::kInvalidArgument,
                   fmt::format("label {} of '{}' is {}, there are ten classes", i, prefix,
                               pictures.label(i))};
    }
  }
  return pictures;
}

// Which pictures become "validation": the same share of each class, by a shuffle of the class.
std::vector<bool> choose_validation(const Pictures& pictures, const FashionMnistOptions& options) {
  std::vector<bool> chosen(pictures.count(), false);
  for (std::size_t label = 0; label < kNames.size(); ++label) {
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < pictures.count(); ++i) {
      if (pictures.label(i) == label) members.push_back(i);
    }
    const std::size_t take =
        members.size() * options.validation / std::max<std::size_t>(pictures.count(), 1);
    const std::vector<std::uint32_t> order =
        vision::shuffled_order(members.size(), options.seed, label);
    for (std::size_t i = 0; i < std::min(take, members.size()); ++i)
      chosen[members[order[i]]] = true;
  }
  return chosen;
}

struct Member {
  std::string split;
  std::size_t index = 0;
};

// Keeps the first `limit` / 10 of each class of a split.
class Limiter {
 public:
  explicit Limiter(std::uint32_t limit)
      : each_((limit + kNames.size() - 1) / kNames.size()), all_(limit == 0) {}
  bool take(const std::string& split, std::size_t label) {
    return all_ || counts_[split][label]++ < each_;
  }

 private:
  std::size_t each_;
  bool all_;
  std::map<std::string, std::array<std::size_t, kNames.size()>> counts_;
};

Result<void> put_all(const Pictures& pictures, const std::vector<Member>& members,
                     Recorder& recorder, const std::vector<std::size_t>& class_numbers) {
  const std::size_t height = pictures.images.shape[1];
  const std::size_t width = pictures.images.shape[2];
  vision::Image image{
      .width = static_cast<int>(width), .height = static_cast<int>(height), .channels = 1};
  for (const Member& member : members) {
    const std::string_view pixels = std::string_view(pictures.images.values)
                                        .substr(member.index * width * height, width * height);
    image.pixels.assign(pixels.begin(), pixels.end());
    TRY(recorder.put(member.split, class_numbers[pictures.label(member.index)],
                     fmt::format("{:05}.png", member.index + 1), TRY(vision::encode_png(image))));
  }
  return {};
}

}  // namespace

Result<Summary> import_fashion_mnist(const FashionMnistOptions& options, Sink& sink,
                                     const Progress& progress) {
  Hasher hasher(Digest::kSha256);
  const Pictures train = TRY(read_pictures(options.source, "train", hasher));
  const Pictures test = TRY(read_pictures(options.source, "t10k", hasher));
  if (options.validation >= train.count()) {
    return Error{Code::kInvalidArgument,
                 fmt::format("validation is {}, there are {} training pictures", options.validation,
                             train.count())};
  }
  hasher.update(fmt::format("validation {} seed {} limit {}", options.validation, options.seed,
                            options.limit));
  Recorder recorder("fashion-mnist", "sha256:" + to_hex(hasher.finish()), sink, progress);
  if (std::optional<Summary> earlier = TRY(recorder.earlier())) return *std::move(earlier);

  std::vector<std::string> classes(kNames.begin(), kNames.end());
  std::ranges::sort(classes);
  std::vector<std::size_t> class_numbers;
  for (const std::string_view name : kNames) {
    class_numbers.push_back(
        static_cast<std::size_t>(std::ranges::find(classes, name) - classes.begin()));
  }
  recorder.set_classes(std::move(classes));
  const std::vector<bool> validation = choose_validation(train, options);
  Limiter limiter(options.limit);
  std::vector<Member> train_members;
  std::vector<Member> test_members;
  for (std::size_t i = 0; i < train.count(); ++i) {
    const std::string split = validation[i] ? "validation" : "train";
    if (limiter.take(split, train.label(i))) train_members.push_back({split, i});
  }
  for (std::size_t i = 0; i < test.count(); ++i) {
    if (limiter.take("test", test.label(i))) test_members.push_back({"test", i});
  }
  recorder.set_total(train_members.size() + test_members.size());
  TRY(put_all(train, train_members, recorder, class_numbers));
  TRY(put_all(test, test_members, recorder, class_numbers));
  return recorder.finish();
}

}  // namespace atelier::datasets
