#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "datasets/import.h"
#include "datasets/internal/manifest.h"
#include "datasets/internal/picture_source.h"
#include "vision/image.h"

namespace atelier::datasets {
namespace {

struct Place {
  std::string split;  // "" when the source has none
  std::string class_name;
  std::string name;
};

bool is_picture_name(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string extension(path.substr(dot));
  std::ranges::transform(extension, extension.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  constexpr std::array<std::string_view, 8> kPictures = {".jpg", ".jpeg", ".png", ".webp",
                                                         ".bmp", ".gif",  ".tif", ".tiff"};
  return std::ranges::find(kPictures, extension) != kPictures.end();
}

std::string_view split_of(std::string_view folder) {
  if (folder == "train" || folder == "training") return "train";
  if (folder == "validation" || folder == "val" || folder == "valid") return "validation";
  if (folder == "test" || folder == "testing") return "test";
  return {};
}

std::string_view first_part(std::string_view path) { return path.substr(0, path.find('/')); }

std::size_t depth(std::string_view path) {
  return static_cast<std::size_t>(std::ranges::count(path, '/'));
}

// How many folders lie around all of it: "fashion-main/data/train/bag/1.png" has two.
std::size_t wrappers(const std::vector<std::string>& pictures) {
  std::vector<std::string_view> rest(pictures.begin(), pictures.end());
  std::size_t taken = 0;
  while (true) {
    const std::string_view head = first_part(rest.front());
    const bool wraps =
        split_of(head).empty() && std::ranges::all_of(rest, [&](std::string_view path) {
          return first_part(path) == head && depth(path) >= 2;
        });
    if (!wraps) return taken;
    for (std::string_view& path : rest) path.remove_prefix(head.size() + 1);
    taken += head.size() + 1;
  }
}

// Where each picture goes, by its path in the source.
Result<std::unordered_map<std::string, Place>> plan_places(const std::vector<std::string>& pictures,
                                                           const std::string& source,
                                                           Recorder& recorder) {
  const std::size_t skip = wrappers(pictures);
  const bool has_splits = std::ranges::all_of(pictures, [&](const std::string& path) {
    const std::string_view inner = std::string_view(path).substr(skip);
    return !split_of(first_part(inner)).empty() && depth(inner) >= 1;
  });
  std::unordered_map<std::string, Place> places;
  for (const std::string& path : pictures) {
    std::string_view inner = std::string_view(path).substr(skip);
    Place place;
    if (has_splits) {
      place.split = split_of(first_part(inner));
      inner.remove_prefix(first_part(inner).size() + 1);
    }
    if (depth(inner) == 0) {
      recorder.warn(fmt::format("'{}' lies in no class folder; left out", path));
      continue;
    }
    place.class_name = first_part(inner);
    place.name = inner.substr(place.class_name.size() + 1);
    places.emplace(path, std::move(place));
  }
  if (places.empty()) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("'{}' has pictures but no class folders; it must hold one folder a "
                             "class, or train, validation and test with them",
                             source)};
  }
  return places;
}

Result<std::vector<std::string>> picture_paths(const SourceListing& listing,
                                               const std::string& source, Recorder& recorder) {
  std::vector<std::string> pictures;
  for (const SourceFile& file : listing.files) {
    if (is_picture_name(file.path)) {
      pictures.push_back(file.path);
    } else if (file.path != kManifestName) {
      recorder.warn(fmt::format("'{}' is no picture; left out", file.path));
    }
  }
  if (pictures.empty())
    return Error{
        Code::kInvalidArgument,
        fmt::format("'{}' has no pictures: it must have a folder of pictures for each class",
                    source)};
  return pictures;
}

}  // namespace

Result<Summary> import_image_folder(const ImageFolderOptions& options, Sink& sink,
                                    const Progress& progress) {
  const std::string source = options.source.string();
  const SourceListing listing = TRY(list_source(options));
  Recorder recorder("imagefolder",
                    fmt::format("sha256:{} decode {}", listing.identity, options.decode), sink,
                    progress);
  if (std::optional<Summary> earlier = TRY(recorder.earlier())) return *std::move(earlier);
  for (const std::string& warning : listing.warnings) recorder.warn(warning);
  const auto places =
      TRY(plan_places(TRY(picture_paths(listing, source, recorder)), source, recorder));
  std::set<std::string> names;
  for (const auto& [path, place] : places) names.insert(place.class_name);
  const std::vector<std::string> classes(names.begin(), names.end());
  recorder.set_classes(classes);
  recorder.set_total(places.size());

  vision::Image image;
  const auto take = [&](const std::string& path, std::string bytes) -> Result<void> {
    const Place& place = places.at(path);
    if (options.decode) {
      const Result<void> decoded = vision::decode_image(std::as_bytes(std::span(bytes)), {}, image);
      if (!decoded) {
        recorder.leave_out(fmt::format("'{}' left out: {}", path, decoded.error().message));
        return {};
      }
    }
    const auto label = static_cast<std::size_t>(
        std::ranges::lower_bound(classes, place.class_name) - classes.begin());
    return recorder.put(place.split, label, place.name, std::move(bytes));
  };
  TRY(read_source_files(
      options, [&](const std::string& path) { return places.contains(path); }, take));
  return recorder.finish();
}

}  // namespace atelier::datasets
