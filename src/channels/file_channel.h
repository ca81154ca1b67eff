// File mode: a channel's objects become files of a folder before the program starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "channels/channel_plan.h"
#include "channels/object_cache.h"
#include "objects/object_store.h"

namespace atelier::channels {

// The S3DataSource of a channel.
struct ChannelSource {
  enum class Kind { kPrefix, kManifest, kAugmentedManifest };
  std::string s3_uri{};
  Kind kind = Kind::kPrefix;
  std::vector<std::string> attribute_names{};  // of an augmented manifest
  bool sharded = false;                        // ShardedByS3Key: `shard` is all that is taken
  Shard shard{};
  // Of a file and a folder of one name (kPrefix), the one that was changed last is taken: a copy of
  // a folder that was cut off in the middle of a change. Else they are refused.
  bool newer_wins = false;
  std::optional<std::uint64_t>
      shuffle_seed{};  // of ShuffleConfig: it decides which shard gets what
};

struct FileChannelReport {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t from_cache = 0;  // files that were on this host already
  std::string manifest{};        // for a file beside the folder; empty without one
};

// Where objects land:
//
//   kPrefix: every object whose key starts with the URI's key, as SageMaker has it
//     s3://b/data/train   data/train/a/1.jpg -> a/1.jpg    (the usual way to name a folder)
//                         data/train2/x.jpg  -> train2/x.jpg  (a raw prefix matches it as well)
//     s3://b/data/train/  data/train/a/1.jpg -> a/1.jpg
//     s3://b/data/1.jpg   data/1.jpg         -> 1.jpg
//   kManifest: the objects that the manifest names, under their names in it
//   kAugmentedManifest: the objects that its attributes NAME-ref point to, under their keys;
//     `manifest` of the report has the lines
//
// A shard is every n-th object of the list (by key; of a manifest, by its order), every n-th line
// of an augmented manifest.
//
// Names that would leave the folder, collide, or do not fit the file system, objects that a
// manifest names and that are not there, and a channel that does not fit the disk are refused
// before the first download. A channel without an object is kNotFound (a shard may be empty). Files
// get mode 0644, folders 0755 (less the umask). `cancelled` is asked between batches of some
// thousand files, and ends it as kCancelled. `progress` counts bytes. With a cache each object is
// downloaded once for all jobs of the host.
Result<FileChannelReport> fill_file_channel(objects::ObjectStore& store,
                                            const ChannelSource& source,
                                            const std::filesystem::path& folder, ObjectCache* cache,
                                            const objects::Progress& progress,
                                            const std::function<bool()>& cancelled = {});

// A whole prefix, without a cache.
Result<FileChannelReport> fill_file_channel(objects::ObjectStore& store, const std::string& s3_uri,
                                            const std::filesystem::path& folder,
                                            const objects::Progress& progress,
                                            const std::function<bool()>& cancelled = {});

}  // namespace atelier::channels
