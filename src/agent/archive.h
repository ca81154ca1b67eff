// Folders of /opt/ml as archives: model and output are packed, source code is unpacked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "agent/ml_tree.h"
#include "archives/archive_reader.h"
#include "base/result.h"

namespace atelier::agent {

// One thing below a folder; `name` is relative to that folder, and sorted before its children.
struct TreeEntry {
  enum class Kind { kFolder, kFile, kLink };
  Kind kind = Kind::kFile;
  std::string name;
  std::string target;  // of a link
  std::uint64_t size = 0;
  std::uint32_t mode = 0644;
  std::int64_t modified = 0;  // seconds since 1970
};

// Everything below `folder` of the tree in a fixed order. Links are named, never followed; FIFOs,
// sockets and devices are left out.
Result<std::vector<TreeEntry>> list_tree(const MlTree& tree, const std::string& folder);

// The same folder of several trees as one: of what has the same name in two of them, the earlier
// tree's counts, and the other one is left out, with what is below it. Folders are merged.
struct MergedTrees {
  struct Item {
    const MlTree* tree;
    TreeEntry entry;
  };
  std::vector<Item> entries;
  std::vector<std::string> left_out;  // names below the folder
};
Result<MergedTrees> list_trees(const std::vector<const MlTree*>& trees, const std::string& folder);

// Packs `folder` of the trees, its contents at the root, as a .tar.gz to `fd`; gives what was left
// out. `go_on` is asked before each piece of a file, and its error ends the packing.
Result<std::vector<std::string>> pack_folders(const std::vector<const MlTree*>& trees,
                                              const std::string& folder, int fd,
                                              const std::function<Result<void>()>& go_on);

// Unpacks the archive (.tar, compressed or not) in `fd` to `folder` of the tree. Entries that would
// leave it, hard links, devices, and archives beyond the limits are kInvalidArgument. `cancelled`
// is asked before each entry, and ends it as kCancelled.
Result<void> unpack_archive(int fd, MlTree& tree, const std::string& folder,
                            const archives::Limits& limits = {},
                            const std::function<bool()>& cancelled = {});

}  // namespace atelier::agent
