// File mode: a channel's objects are copied into a folder before the program starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "objects/object_store.h"

namespace atelier::channels {

struct FileChannelReport {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

// Downloads every object whose key starts with the URI's key (S3Prefix, raw prefix as SageMaker has
// it) to `folder`/<key minus the prefix's folder>. Names that would leave the folder, collide as
// file and folder, or do not fit the file system are refused before the first download. An empty
// prefix is kNotFound. Files get mode 0644, folders 0755.
Result<FileChannelReport> fill_file_channel(objects::ObjectStore& store, const std::string& s3_uri,
                                            const std::filesystem::path& folder,
                                            const objects::Progress& progress);

}  // namespace atelier::channels
