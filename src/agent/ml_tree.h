// The job's /opt/ml as the agent handles it. Once the program has run, every name in there is the
// program's: a folder may have become a symbolic link to /etc, a file a FIFO. So nothing is opened
// by a path of the host: each open starts at the tree's own descriptor, stays beneath it, follows
// no link, and takes regular files only.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spec.h"
#include "base/file.h"
#include "base/result.h"
#include "compute/sandbox.h"

namespace atelier::agent {

class MlTree {
 public:
  // Makes `folder` if needed; what is made here belongs to `owner`.
  static Result<MlTree> open(const std::filesystem::path& folder, compute::Identity owner);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  // Each name is relative to the tree ("output/data").
  Result<void> make_folder(const std::string& name);
  Result<UniqueFd> open_folder(const std::string& name) const;
  // kNotFound when it is not there, kInvalidArgument when it is no regular file.
  Result<UniqueFd> open_file(const std::string& name) const;
  // Creates the file, with its folders; kAlreadyExists when something is there.
  Result<UniqueFd> create_file(const std::string& name, mode_t mode = 0644);
  Result<void> write_file(const std::string& name, std::string_view text);
  // At most `max_bytes` from the start of a file.
  Result<std::string> read_start(const std::string& name, std::size_t max_bytes) const;
  Result<void> make_link(const std::string& target, const std::string& name);
  Result<void> make_executable(const std::string& name);
  // Gives every folder below `name` to the owner (files that an agent downloaded stay read-only).
  Result<void> give_folders(const std::string& name);
  // The files as well.
  Result<void> give_all(const std::string& name);

 private:
  MlTree(std::filesystem::path folder, UniqueFd root, compute::Identity owner)
      : folder_(std::move(folder)), root_(std::move(root)), owner_(owner) {}
  Result<UniqueFd> open_beneath(const std::string& name, int flags, mode_t mode = 0) const;
  // The folder that holds `name`, made if needed, and the last part of it.
  Result<std::pair<UniqueFd, std::string>> parent_of(const std::string& name);

  std::filesystem::path folder_;
  UniqueFd root_;
  compute::Identity owner_;
};

// Names in an open folder, without "." and "..", sorted. With `folders_only` those of files are
// left out where the file system tells them apart.
Result<std::vector<std::string>> names_in_folder(int folder, bool folders_only = false);

// The folders of the contract and the files of input/config, as the program finds them.
Result<void> prepare_ml_tree(MlTree& tree, const AgentSpec& spec);

std::string resource_config_json(const AgentSpec& spec);
std::string input_data_config_json(const AgentSpec& spec);

}  // namespace atelier::agent
