// File mode: a channel's objects are copied into a folder before the program starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "objects/object_store.h"

namespace atelier::channels {

struct FileChannelReport {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

// Downloads every object whose key starts with the URI's key, as SageMaker's S3Prefix has it:
//
//   s3://b/data/train   data/train/a/1.jpg -> a/1.jpg    (the usual way to name a folder)
//                       data/train2/x.jpg  -> train2/x.jpg  (a raw prefix matches it as well)
//   s3://b/data/train/  data/train/a/1.jpg -> a/1.jpg
//   s3://b/data/1.jpg   data/1.jpg         -> 1.jpg
//
// Names that would leave the folder, collide as file and folder, or do not fit the file system, and
// a channel that does not fit the disk are refused before the first download. An empty prefix is
// kNotFound. Files get mode 0644, folders 0755 (less the umask). `cancelled` is asked between
// batches of some thousand files, and ends it as kCancelled. `progress` counts bytes.
Result<FileChannelReport> fill_file_channel(objects::ObjectStore& store, const std::string& s3_uri,
                                            const std::filesystem::path& folder,
                                            const objects::Progress& progress,
                                            const std::function<bool()>& cancelled = {});

}  // namespace atelier::channels
