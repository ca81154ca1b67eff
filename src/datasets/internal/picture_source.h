// The files of a folder or of an archive, one after the other, as bytes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "datasets/import.h"

namespace atelier::datasets {

struct SourceFile {
  std::string path;
  std::uint64_t size = 0;
};

// All regular files by name, without hidden ones; links are left out. `identity` is a digest that
// changes with the source.
struct SourceListing {
  std::vector<SourceFile> files;
  std::string identity;
  std::vector<std::string> warnings;
};
Result<SourceListing> list_source(const ImageFolderOptions& options);

// Calls `take` for each file that `wanted` names, in the source's own order.
Result<void> read_source_files(
    const ImageFolderOptions& options, const std::function<bool(const std::string&)>& wanted,
    const std::function<Result<void>(const std::string& path, std::string bytes)>& take);

}  // namespace atelier::datasets
