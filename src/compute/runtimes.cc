#include "compute/runtimes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace atelier::compute {
namespace fs = std::filesystem;
namespace {

// "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.6.0-gpu-py3" in its parts.
struct Image {
  std::string_view repository;  // "pytorch-training"
  std::string_view tag;         // "1.6.0-gpu-py3"; "latest" when there is none
};

Image split(std::string_view uri) {
  Image image{uri, "latest"};
  const std::size_t slash = uri.rfind('/');
  if (slash != std::string_view::npos) image.repository = uri.substr(slash + 1);
  image.repository = image.repository.substr(0, image.repository.find('@'));
  const std::size_t colon = image.repository.find(':');
  if (colon != std::string_view::npos) {
    image.tag = image.repository.substr(colon + 1);
    image.repository = image.repository.substr(0, colon);
  }
  return image;
}

// One family of images, and the Python package that makes it possible here.
struct Family {
  std::string_view repository;
  std::string_view package;       // as its distribution metadata names it
  std::string_view shown;         // as people name it
  std::string_view module;        // SAGEMAKER_TRAINING_MODULE of the image
  bool package_required = false;  // refused without it; else the job is told
};

constexpr std::string_view kPyTorchModule = "sagemaker_pytorch_container.training:main";
constexpr Family kFamilies[] = {
    {"pytorch-training", "torch", "PyTorch", kPyTorchModule, false},
    {"pytorch-inference", "torch", "PyTorch", kPyTorchModule, false},
    {"huggingface-pytorch-training", "torch", "PyTorch", kPyTorchModule, false},
    {"sagemaker-scikit-learn", "scikit_learn", "scikit-learn",
     "sagemaker_sklearn_container.training:main", true},
};

constexpr std::string_view kKnown =
    "pytorch-training, pytorch-inference, huggingface-pytorch-training, sagemaker-scikit-learn and "
    "image-classification";

bool starts_with_in_any_case(std::string_view text, std::string_view start) {
  const auto same = [](char a, char b) {
    const auto plain = [](char c) {
      return c == '-' ? '_' : static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    };
    return plain(a) == plain(b);
  };
  return text.size() >= start.size() && std::equal(start.begin(), start.end(), text.begin(), same);
}

// Where an interpreter looks for packages, without asking it (that costs 20 ms of every create).
std::vector<fs::path> package_folders(const fs::path& python) {
  std::error_code failure;
  std::vector<fs::path> prefixes{python.parent_path().parent_path()};
  // A distribution's interpreter also reads what pip put under /usr/local.
  if (prefixes.front() == "/usr") prefixes.emplace_back("/usr/local");
  std::vector<fs::path> folders;
  for (const fs::path& prefix : prefixes) {
    for (const auto& entry : fs::directory_iterator(prefix / "lib", failure)) {
      if (entry.path().filename().string().rfind("python3", 0) != 0) continue;
      folders.push_back(entry.path() / "site-packages");
      folders.push_back(entry.path() / "dist-packages");
    }
  }
  return folders;
}

std::optional<std::string> installed_version(const fs::path& python, std::string_view package) {
  for (const fs::path& folder : package_folders(python)) {
    std::error_code failure;
    for (const auto& entry : fs::directory_iterator(folder, failure)) {
      const std::string name = entry.path().filename().string();
      if (!starts_with_in_any_case(name, package) || name.size() <= package.size() ||
          name[package.size()] != '-') {
        continue;
      }
      const std::string rest = name.substr(package.size() + 1);
      for (const std::string_view end : {".dist-info", ".egg-info"}) {
        // An egg's name may go on with "-py3.11";
        // and a local part, "+cpu", is no part of what was asked for.
        const std::size_t found = std::min({rest.find("-py"), rest.find('+'), rest.find(end)});
        if (rest.find(end) != std::string::npos) return rest.substr(0, found);
      }
    }
  }
  return std::nullopt;
}

// "1.6.0" of "1.6.0-gpu-py3-cu110-ubuntu18.04"; empty when the tag names no version.
std::string_view version_of_tag(std::string_view tag) {
  const std::string_view version = tag.substr(0, tag.find_first_not_of("0123456789."));
  return version.find('.') == std::string_view::npos ? std::string_view{} : version;
}

std::string note_for(const Family& family, std::string_view tag, const std::string& python,
                     const std::optional<std::string>& installed) {
  if (!installed) {
    return fmt::format("{} is not installed for {}: an import of it will fail", family.shown,
                       python);
  }
  const std::string_view asked = version_of_tag(tag);
  if (asked.empty() || *installed == asked) return {};
  return fmt::format("the image asks for {} {}; this host runs {}", family.shown, asked,
                     *installed);
}

// What an interpreter outside of /usr needs to be seen in a sandbox: a virtual environment, and the
// Python that it was made of.
std::vector<std::string> interpreter_folders(const fs::path& python) {
  std::vector<std::string> folders;
  std::error_code failure;
  for (const fs::path& path : {python, fs::canonical(python, failure)}) {
    if (path.empty()) continue;
    const fs::path prefix = path.parent_path().parent_path();
    const std::string text = prefix.string();
    if (prefix == "/usr" || text.rfind("/usr/", 0) == 0 || prefix == "/" || prefix.empty())
      continue;
    if (std::find(folders.begin(), folders.end(), text) == folders.end()) folders.push_back(text);
  }
  return folders;
}

Result<Runtime> script_runtime(const RuntimeTable& table, const Family& family, const Image& image,
                               std::string_view uri) {
  const auto installed = installed_version(table.python, family.package);
  if (!installed && family.package_required) {
    return Error{Code::kInvalidArgument,
                 fmt::format("TrainingImage '{}' needs {}, which is not installed for {} here: "
                             "install it there, or use one of {}",
                             uri, family.shown, table.python, kKnown)};
  }
  Runtime runtime;
  runtime.kind = RuntimeKind::kScript;
  runtime.name = std::string{family.repository};
  runtime.program = {table.python};
  runtime.framework_module = std::string{family.module};
  runtime.framework_version = installed.value_or("");
  runtime.folders = interpreter_folders(table.python);
  runtime.has_mpi =
      access("/usr/bin/mpirun", X_OK) == 0 && installed_version(table.python, "mpi4py").has_value();
  runtime.note = note_for(family, image.tag, table.python, installed);
  return runtime;
}

}  // namespace

std::string choose_python(const std::string& system, const fs::path& program) {
  if (installed_version(system, "torch")) return system;
  for (fs::path above = program.parent_path(); above.has_relative_path();
       above = above.parent_path()) {
    const fs::path python = above / ".venv/bin/python";
    if (access(python.c_str(), X_OK) == 0 && installed_version(python, "torch")) {
      return python.string();
    }
  }
  return system;
}

Result<Runtime> find_runtime(const RuntimeTable& table, std::string_view image_uri) {
  const Image image = split(image_uri);
  for (const Family& family : kFamilies) {
    if (image.repository == family.repository) {
      return script_runtime(table, family, image, image_uri);
    }
  }
  if (image.repository == "image-classification") {
    if (table.vision_program.empty()) {
      return Error{
          Code::kInvalidArgument,
          fmt::format("TrainingImage '{}' is run by atelier-vision, which is not built here",
                      image_uri)};
    }
    Runtime runtime;
    runtime.kind = RuntimeKind::kBuiltIn;
    runtime.name = "image-classification";
    runtime.program = {table.vision_program, "train"};
    runtime.folders = table.vision_folders;
    return runtime;
  }
  if (image.repository.find("tensorflow") != std::string_view::npos) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("TrainingImage '{}': TensorFlow is not offered here; known images are {}",
                    image_uri, kKnown)};
  }
  return Error{
      Code::kInvalidArgument,
      fmt::format("TrainingImage '{}' is not known here; known images are {}", image_uri, kKnown)};
}

}  // namespace atelier::compute
