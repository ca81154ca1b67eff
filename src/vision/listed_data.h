// Data sets whose labels are written down instead of being folders, as ImageFolder: .lst files and
// manifests (picture_lists.h), and RecordIO (record_io.h), SageMaker's application/x-recordio.
// A row that cannot be right is refused with its line or byte; nothing is left out in silence.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vision/image_folder.h"
#include "vision/picture_lists.h"

namespace atelier::vision {

// How several labels of a picture are written.
enum class LabelFormat {
  kMultiHot,  // one 0 or 1 for each class
  kClassId,   // the numbers of its classes
};

struct ListOptions {
  bool multi_label = false;
  LabelFormat label_format = LabelFormat::kMultiHot;
  std::optional<std::size_t> num_classes = {};
  // The classes of the training data, for validation and test.
  std::optional<std::vector<std::string>> classes = {};
  ManifestAttributes attributes = {};
};

// `list` names pictures below `pictures`: relative paths, and links only to places below it.
Result<ImageFolder> open_lst(const std::filesystem::path& pictures,
                             const std::filesystem::path& list, const ListOptions& options);
// All .rec files of the folder, in byte order.
Result<ImageFolder> open_records(const std::filesystem::path& folder, const ListOptions& options);
// A URI s3://bucket/a/b/c.jpg is the file a/b/c.jpg, b/c.jpg or c.jpg of the folder, the first that
// is there: a channel's files lie below it by what follows its prefix, or by their whole keys.
Result<ImageFolder> open_manifest(const std::filesystem::path& folder,
                                  const std::filesystem::path& manifest,
                                  const ListOptions& options);

// The files of a folder whose names end so, in byte order.
Result<std::vector<std::filesystem::path>> files_ending(const std::filesystem::path& folder,
                                                        std::string_view ending);

}  // namespace atelier::vision
