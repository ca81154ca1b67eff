// Public data sets as class folders of pictures, ready for training.
//
//   auto sink = TRY(folder_sink("/data/fashion"));
//   Summary made = TRY(import_fashion_mnist({}, *sink, progress));
//
//   train/ankle-boot/00001.png  validation/...  test/...  dataset.json
//
// An importer reads its source, and gives each file to a Sink: a folder, or an object store.
// `dataset.json` is given last and says what was made from what, so an import that was cut off is
// not taken for a whole one, and one that is complete is not repeated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::datasets {

inline constexpr std::string_view kManifestName = "dataset.json";

// Where an import goes. Used by one thread.
class Sink {
 public:
  virtual ~Sink() = default;
  // The manifest of an earlier import in this place, or nothing.
  virtual Result<std::optional<std::string>> manifest() = 0;
  // Paths are relative, with '/', without "..", "." or empty parts. A sink may keep bytes in
  // flight; an error of an earlier put may be reported by a later call.
  virtual Result<void> put(std::string path, std::string bytes) = 0;
  // Everything that was put becomes durable and visible, and `manifest` with it, last.
  virtual Result<void> finish(std::string manifest) = 0;
};

// Files below `folder`, which must be absent, empty, or an earlier import. They are made beside it,
// in
// ".NAME.importing", and appear all at once by one rename.
Result<std::unique_ptr<Sink>> folder_sink(const std::filesystem::path& folder);

struct Summary {
  bool repeated = false;  // the result was complete already: nothing was done
  std::vector<std::string> classes;
  // split ("train", "validation", "test"; "" when the source has none) -> pictures of each class,
  // in the order of `classes`
  std::map<std::string, std::vector<std::uint64_t>> counts;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> warnings;
};

// Called from the importing thread, after each file. `total` is 0 while it is not known.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct FashionMnistOptions {
  // The four idx files, with or without ".gz", as Debian's dataset-fashion-mnist puts them.
  std::filesystem::path source = "/usr/share/datasets/fashion-mnist";
  // So many of the 60,000 training pictures, drawn by `seed` and the same share of each class,
  // become "validation"; 0: none.
  std::uint32_t validation = 5000;
  std::uint64_t seed = 1;
  // At most so many pictures of each split (spread evenly over the classes) for a short run; 0:
  // all.
  std::uint32_t limit = 0;
};
Result<Summary> import_fashion_mnist(const FashionMnistOptions& options, Sink& sink,
                                     const Progress& progress = {});

struct ImageFolderOptions {
  // A folder, or a .tar, .tar.gz, .tgz, .tar.xz, .zip; of class folders, or of "train",
  // "validation" (or "val"), "test" with class folders in each. One folder around all of it is
  // taken off.
  std::filesystem::path source = {};
  bool decode =
      true;  // every picture is decoded once; one that cannot be is left out, with a warning
  std::uint64_t max_files = 10'000'000;
  std::uint64_t max_file_bytes = std::uint64_t{256} << 20;
  std::uint64_t max_total_bytes = std::uint64_t{1} << 40;
};
Result<Summary> import_image_folder(const ImageFolderOptions& options, Sink& sink,
                                    const Progress& progress = {});

struct DeepFashionOptions {
  // The folder of the Category and Attribute Prediction Benchmark as published: Img/ (or img/),
  // Anno/ or Anno_coarse/, Eval/.
  std::filesystem::path source = {};
  bool crop_to_box = false;  // to list_bbox.txt, as the published results do
  bool upper_body_only =
      false;  // the 20 upper-body categories; otherwise the 46 that have pictures
  bool decode = true;
};
Result<Summary> import_deepfashion(const DeepFashionOptions& options, Sink& sink,
                                   const Progress& progress = {});

}  // namespace atelier::datasets
