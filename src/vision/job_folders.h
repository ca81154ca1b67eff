// The folders that a training container sees: /opt/ml, or what SAGEMAKER_BASE_DIR names.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::vision {

struct JobFolders {
  std::filesystem::path root;

  [[nodiscard]] std::filesystem::path config(std::string_view file) const;
  [[nodiscard]] std::filesystem::path model() const { return root / "model"; }
  [[nodiscard]] std::filesystem::path output_data() const { return root / "output" / "data"; }
  [[nodiscard]] std::filesystem::path failure() const { return root / "output" / "failure"; }
  // The folder of the first of `names` that is there as a channel.
  [[nodiscard]] std::optional<std::filesystem::path> channel(
      std::initializer_list<std::string_view> names) const;
};

JobFolders job_folders_from_environment();

// Where checkpoints go: `asked` when it is not empty, else LocalPath of checkpointconfig.json, else
// checkpoints/ where that is there; nothing when none of them is.
Result<std::optional<std::filesystem::path>> checkpoint_folder(const JobFolders& folders,
                                                               const std::string& asked);

// What inputdataconfig.json says of a channel.
struct ChannelConfig {
  std::string content_type;  // in lower case, without parameters; empty: none
  std::string label_format;  // the parameter of that name
  // Of an augmented manifest, whose lines then lie in the file CHANNEL-manifest beside the folder.
  std::vector<std::string> attribute_names;
};
ChannelConfig channel_config(const JobFolders& folders, std::string_view channel);

// Refuses what this program cannot do: several hosts, Pipe channels.
Result<void> check_job(const JobFolders& folders);

// Writes the reason of a failure where the platform looks for it; never over one that is there.
void write_failure(const JobFolders& folders, const Error& error);

// Environment variable, or nothing when it is unset or empty.
std::optional<std::string> environment(const char* name);

}  // namespace atelier::vision
