// Which objects become which files of a channel, as pure functions: names are checked before the
// first byte is fetched, because keys are hostile input (any bytes, up to 1,024 of them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "objects/object_store.h"

namespace atelier::channels {

// The part of a ShardedByS3Key channel that this instance gets.
struct Shard {
  std::size_t index = 0;  // below count
  std::size_t count = 1;
};

struct PlannedFile {
  objects::ObjectInfo object;  // key, size and ETag
  std::string name;            // relative to the channel's folder
};

struct ChannelPlan {
  std::string bucket;
  std::vector<PlannedFile> files;
  std::unordered_set<std::string> folders;  // relative, without an end slash
  std::uint64_t bytes = 0;
};

// Collects a plan. Objects that cannot become files are all remembered, and named by finish().
class ChannelPlanner {
 public:
  // `folds_case`: whether the file system takes "A" and "a" for one name. `folder_bytes`: of the
  // path of the channel's folder.
  ChannelPlanner(std::string bucket, std::size_t folder_bytes, bool folds_case);

  // An object at a name relative to the folder. One whose name ends with '/' and that is empty is a
  // folder, as consoles make them; an empty name is the folder itself. kResourceExhausted beyond 50
  // million objects.
  Result<void> add(objects::ObjectInfo object, std::string name);
  // Of a file and a folder of one name, leaves out the one that is older (a folder is as new as the
  // newest file in it).
  void keep_newer();
  // kInvalidArgument with what cannot be: names that would leave the folder or do not fit a file
  // system, two objects on one name, one name as file and folder. The first twenty are named.
  Result<ChannelPlan> finish() &&;

 private:
  void refuse(std::string_view key, std::string_view why);
  void add_folders(std::string_view folder);
  void find_collisions();

  ChannelPlan plan_;
  std::size_t folder_bytes_;
  bool folds_case_;
  std::size_t refused_ = 0;
  std::vector<std::string> reasons_;
};

// Where a key of an S3Prefix channel lands: what follows the prefix, or, where the prefix stops
// inside of a name, what follows its last '/'.
std::string_view name_below_prefix(std::string_view key, std::string_view prefix);

// What the instance gets of a list: every count-th element, beginning with its index, of the list
// as it is, or as the seed shuffles it. The parts of all instances are disjoint and together the
// list.
std::vector<std::size_t> shard_of(std::size_t size, Shard shard,
                                  std::optional<std::uint64_t> shuffle_seed);

}  // namespace atelier::channels
