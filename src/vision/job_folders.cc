#include "vision/job_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/file.h"
#include "base/json.h"

namespace atelier::vision {

std::optional<std::string> environment(const char* name) {
  const char* value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::filesystem::path JobFolders::config(std::string_view file) const {
  return root / "input" / "config" / file;
}

std::optional<std::filesystem::path> JobFolders::channel(
    std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    const std::filesystem::path path = root / "input" / "data" / name;
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) return path;
  }
  return std::nullopt;
}

JobFolders job_folders_from_environment() {
  return {environment("SAGEMAKER_BASE_DIR").value_or("/opt/ml")};
}

Result<std::optional<std::filesystem::path>> checkpoint_folder(const JobFolders& folders,
                                                               const std::string& asked) {
  using Found = std::optional<std::filesystem::path>;
  if (!asked.empty()) return Found(asked);
  const std::filesystem::path config = folders.config("checkpointconfig.json");
  std::error_code ignored;
  if (std::filesystem::exists(config, ignored)) {
    const auto path = find_string(TRY(read_json_file(config)), "LocalPath");
    if (path && !path->empty()) return Found(*path);
  }
  const std::filesystem::path usual = folders.root / "checkpoints";
  return std::filesystem::is_directory(usual, ignored) ? Found(usual) : Found();
}

ChannelConfig channel_config(const JobFolders& folders, std::string_view channel) {
  ChannelConfig result;
  const Result<json::value> config = read_json_file(folders.config("inputdataconfig.json"));
  const json::value* entry = config ? find_member(*config, channel) : nullptr;
  if (entry == nullptr) return result;
  std::string type = find_string(*entry, "ContentType").value_or("");
  std::erase_if(type, [](unsigned char c) { return std::isspace(c) != 0; });
  std::ranges::transform(type, type.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  result.content_type = type.substr(0, type.find(';'));
  constexpr std::string_view kLabelFormat = ";label-format=";
  if (const std::size_t at = type.find(kLabelFormat); at != std::string::npos) {
    const std::string rest = type.substr(at + kLabelFormat.size());
    result.label_format = rest.substr(0, rest.find(';'));
  }
  if (const json::array* names = find_array(*entry, "AttributeNames")) {
    for (const json::value& name : *names) {
      if (name.is_string()) result.attribute_names.emplace_back(name.as_string());
    }
  }
  return result;
}

Result<void> check_job(const JobFolders& folders) {
  const std::filesystem::path resources = folders.config("resourceconfig.json");
  if (std::filesystem::exists(resources)) {
    const json::value config = TRY(read_json_file(resources));
    const json::array* hosts = find_array(config, "hosts");
    if (hosts != nullptr && hosts->size() > 1) {
      return Error{
          Code::kInvalidArgument,
          fmt::format("InstanceCount is {}; image classification trains on 1 host", hosts->size())};
    }
  }
  const std::filesystem::path inputs = folders.config("inputdataconfig.json");
  if (!std::filesystem::exists(inputs)) return {};
  const json::value config = TRY(read_json_file(inputs));
  if (!config.is_object()) return {};
  for (const auto& [name, channel] : config.as_object()) {
    const std::string mode = find_string(channel, "TrainingInputMode").value_or("File");
    const std::string wrapper = find_string(channel, "RecordWrapperType").value_or("None");
    if (mode == "Pipe" || wrapper == "RecordIO") {
      return Error{
          Code::kInvalidArgument,
          fmt::format("channel '{}' has TrainingInputMode '{}' and RecordWrapperType '{}'; it "
                      "must be File or FastFile, and None (a .rec file is read as it is)",
                      std::string(name), mode, wrapper)};
    }
  }
  return {};
}

void write_failure(const JobFolders& folders, const Error& error) {
  const Result<void> folder = make_folders(folders.failure().parent_path());
  if (!folder) return;
  ignore_error(create_file_durably(folders.failure(), error.message + "\n"),
               "the reason is on stderr too, and one that is there came first");
}

}  // namespace atelier::vision
