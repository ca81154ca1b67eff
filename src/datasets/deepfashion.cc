// DeepFashion, Category and Attribute Prediction Benchmark (Liu et al., CVPR 2016), from the folder
// as published.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "datasets/import.h"
#include "datasets/internal/deepfashion_lists.h"
#include "datasets/internal/manifest.h"
#include "vision/encode.h"

namespace atelier::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxListBytes = std::size_t{512} << 20;
constexpr int kCropQuality = 95;

// The text of the first of `names` that is there.
Result<std::string> read_list(const fs::path& source, std::initializer_list<std::string_view> names,
                              Hasher& hasher) {
  for (const std::string_view name : names) {
    Result<std::string> text = read_file(source / name, kMaxListBytes);
    if (text) hasher.update(*text);
    if (text || text.error().code != Code::kNotFound) return text;
  }
  return Error{
      Code::kNotFound,
      fmt::format(
          "'{}' has no '{}': it is not DeepFashion's Category and Attribute Prediction Benchmark",
          source.string(), *names.begin())};
}

struct Lists {
  std::vector<Category> categories;
  std::vector<Listed<int>> labels;
  std::unordered_map<std::string, std::string> parts;
  std::unordered_map<std::string, std::array<int, 4>> boxes;
};

template <typename Value>
Result<std::unordered_map<std::string, Value>> by_path(std::vector<Listed<Value>> listed,
                                                       std::string_view name) {
  std::unordered_map<std::string, Value> map;
  for (Listed<Value>& row : listed) {
    if (!map.emplace(row.path, std::move(row.value)).second) {
      return Error{Code::kInvalidArgument, fmt::format("{}: '{}' is there twice", name, row.path)};
    }
  }
  return map;
}

template <typename T>
Result<T> named(Result<T> parsed, std::string_view name) {
  if (!parsed) return parsed.error().within(name);
  return parsed;
}

Result<Lists> read_lists(const DeepFashionOptions& options, Hasher& hasher) {
  const fs::path& source = options.source;
  Lists lists;
  const std::string categories = TRY(read_list(
      source, {"Anno/list_category_cloth.txt", "Anno_coarse/list_category_cloth.txt"}, hasher));
  lists.categories = TRY(named(parse_categories(categories), "list_category_cloth.txt"));
  const std::string labels = TRY(read_list(
      source, {"Anno/list_category_img.txt", "Anno_coarse/list_category_img.txt"}, hasher));
  lists.labels =
      TRY(named(parse_category_images(labels, lists.categories.size()), "list_category_img.txt"));
  const std::string parts = TRY(read_list(source, {"Eval/list_eval_partition.txt"}, hasher));
  lists.parts = TRY(by_path(TRY(named(parse_partition(parts), "list_eval_partition.txt")),
                            "list_eval_partition.txt"));
  if (lists.parts.size() != lists.labels.size()) {
    return Error{Code::kDataLoss,
                 fmt::format("list_eval_partition.txt has {} pictures and list_category_img.txt {}",
                             lists.parts.size(), lists.labels.size())};
  }
  if (!options.crop_to_box) return lists;
  const std::string boxes =
      TRY(read_list(source, {"Anno/list_bbox.txt", "Anno_coarse/list_bbox.txt"}, hasher));
  lists.boxes = TRY(by_path(TRY(named(parse_boxes(boxes), "list_bbox.txt")), "list_bbox.txt"));
  return lists;
}

// Where "img/Item/img_1.jpg" of the lists is: the archives unpack to Img/img, but people move
// things.
Result<fs::path> find_pictures(const fs::path& source, const std::string& first) {
  std::error_code failed;
  for (const std::string_view folder : {"Img", "", "img", "images"}) {
    if (fs::exists(source / folder / first, failed)) return source / folder;
  }
  return Error{Code::kNotFound, fmt::format("'{}' is in no 'Img' of '{}': unpack img.zip there",
                                            first, source.string())};
}

// The classes: in the order of the class file, without those that have no picture at all. Never the
// observed labels alone: four of the fifty ids are empty, and numbering what is seen would move all
// after them.
struct Classes {
  std::vector<std::string> names;  // sorted by bytes, as class folders are numbered
  std::vector<std::optional<std::size_t>> of_category;  // by id - 1
};
Classes choose_classes(const Lists& lists, bool upper_body_only, Recorder& recorder) {
  std::vector<std::uint64_t> pictures(lists.categories.size(), 0);
  for (const Listed<int>& row : lists.labels) ++pictures[static_cast<std::size_t>(row.value - 1)];
  Classes classes;
  for (std::size_t i = 0; i < lists.categories.size(); ++i) {
    if (upper_body_only && lists.categories[i].type != 1) continue;
    if (pictures[i] > 0) {
      classes.names.push_back(lists.categories[i].name);
    } else {
      recorder.warn(
          fmt::format("category {} '{}' has no pictures", i + 1, lists.categories[i].name));
    }
  }
  std::ranges::sort(classes.names);
  for (const Category& category : lists.categories) {
    const auto found = std::ranges::find(classes.names, category.name);
    classes.of_category.push_back(
        found == classes.names.end()
            ? std::nullopt
            : std::optional<std::size_t>(static_cast<std::size_t>(found - classes.names.begin())));
  }
  return classes;
}

vision::Image crop(const vision::Image& image, const std::array<int, 4>& box) {
  const int left = std::clamp(box[0], 0, image.width - 1);
  const int top = std::clamp(box[1], 0, image.height - 1);
  vision::Image part{.width = std::clamp(box[2], left + 1, image.width) - left,
                     .height = std::clamp(box[3], top + 1, image.height) - top};
  part.pixels.resize(part.row_bytes() * static_cast<std::size_t>(part.height));
  for (int y = 0; y < part.height; ++y) {
    std::memcpy(part.pixels.data() + static_cast<std::size_t>(y) * part.row_bytes(),
                image.pixels.data() + static_cast<std::size_t>(top + y) * image.row_bytes() +
                    static_cast<std::size_t>(left) * 3,
                part.row_bytes());
  }
  return part;
}

// The bytes to keep of a picture, or why it is left out.
Result<std::string> picture_bytes(const fs::path& file, const DeepFashionOptions& options,
                                  const std::array<int, 4>* box) {
  std::string bytes = TRY(read_file(file, std::size_t{256} << 20));
  if (!options.decode && box == nullptr) return bytes;
  vision::Image image;
  TRY(vision::decode_image(std::as_bytes(std::span(bytes)), {}, image));
  if (box == nullptr) return bytes;
  if ((*box)[2] <= (*box)[0] || (*box)[3] <= (*box)[1]) {
    return Error{Code::kInvalidArgument, fmt::format("its box {},{} {},{} is empty", (*box)[0],
                                                     (*box)[1], (*box)[2], (*box)[3])};
  }
  return vision::encode_jpeg(crop(image, *box), kCropQuality);
}

// "img/Sheer_Blouse/img_00000001.jpg" -> "Sheer_Blouse__img_00000001.jpg"
std::string flat_name(std::string_view path) {
  if (path.starts_with("img/")) path.remove_prefix(4);
  std::string name;
  for (const char c : path) {
    if (c == '/') {
      name += "__";
    } else {
      name += c;
    }
  }
  return name;
}

Result<void> put_pictures(const DeepFashionOptions& options, const Lists& lists,
                          const Classes& classes, Recorder& recorder) {
  const fs::path pictures = TRY(find_pictures(options.source, lists.labels.front().path));
  for (const Listed<int>& row : lists.labels) {
    const std::optional<std::size_t> label =
        classes.of_category[static_cast<std::size_t>(row.value - 1)];
    if (!label) continue;
    const auto part = lists.parts.find(row.path);
    if (part == lists.parts.end()) {
      return Error{Code::kDataLoss, fmt::format("list_eval_partition.txt lacks '{}'", row.path)};
    }
    const auto box = lists.boxes.find(row.path);
    if (options.crop_to_box && box == lists.boxes.end()) {
      return Error{Code::kDataLoss, fmt::format("list_bbox.txt lacks '{}'", row.path)};
    }
    Result<std::string> bytes =
        picture_bytes(pictures / row.path, options, options.crop_to_box ? &box->second : nullptr);
    if (!bytes && (bytes.error().code == Code::kNotFound || bytes.error().code == Code::kIo))
      return bytes.error();
    if (!bytes) {
      recorder.leave_out(fmt::format("'{}' left out: {}", row.path, bytes.error().message));
      continue;
    }
    TRY(recorder.put(part->second == "val" ? "validation" : part->second, *label,
                     flat_name(row.path), *std::move(bytes)));
  }
  return {};
}

}  // namespace

Result<Summary> import_deepfashion(const DeepFashionOptions& options, Sink& sink,
                                   const Progress& progress) {
  Hasher hasher(Digest::kSha256);
  const Lists lists = TRY(read_lists(options, hasher));
  if (lists.labels.empty())
    return Error{Code::kFailedPrecondition, "list_category_img.txt names no picture"};
  hasher.update(fmt::format("crop {} upper {} decode {}", options.crop_to_box,
                            options.upper_body_only, options.decode));
  Recorder recorder("deepfashion", "sha256:" + to_hex(hasher.finish()), sink, progress);
  if (std::optional<Summary> earlier = TRY(recorder.earlier())) return *std::move(earlier);
  const Classes classes = choose_classes(lists, options.upper_body_only, recorder);
  recorder.set_classes(classes.names);
  json::object ids;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < lists.categories.size(); ++i) {
    if (classes.of_category[i]) ids[lists.categories[i].name] = i + 1;
  }
  for (const Listed<int>& row : lists.labels)
    total += classes.of_category[static_cast<std::size_t>(row.value - 1)] ? 1U : 0U;
  recorder.set_extra("category_ids", json::serialize(ids));
  recorder.set_total(total);
  TRY(put_pictures(options, lists, classes, recorder));
  return recorder.finish();
}

}  // namespace atelier::datasets
