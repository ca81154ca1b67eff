// From an image URI to what runs in its place on a machine without containers: a table of patterns.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::compute {

enum class RuntimeKind {
  kScript,  // the framework images: the user's Python script, as the official training toolkit runs
            // it
  kBuiltIn,  // a program of ours that reads /opt/ml itself
};

struct Runtime {
  RuntimeKind kind = RuntimeKind::kScript;
  std::string name;                  // "pytorch-training", "image-classification"
  std::vector<std::string> program;  // kBuiltIn: argv; kScript: the Python interpreter
  std::string framework_module;      // kScript: "sagemaker_pytorch_container.training:main"
  std::string framework_version;     // of the installed framework; empty when there is none
  // Files and folders outside of the system's that the program needs, seen read-only at their path.
  std::vector<std::string> folders;
  bool has_mpi = false;  // mpirun is there, and mpi4py for the program
  std::string note;      // said on the job when the match is not exact ("asked 1.6.0, runs 1.13.1")
};

struct RuntimeTable {
  std::string python = "/usr/bin/python3";  // for scripts; from set-up
  std::string vision_program;               // path of atelier-vision
  // Folders outside of /usr that hold its libraries (a pip-installed libtorch).
  std::vector<std::string> vision_folders;
};

// Which Python runs scripts where nobody says: `system`, or, where that has no PyTorch
// (Ubuntu 24.04 packages none), that of the project's environment (.venv of a folder above
// `program`), if that one has it.
std::string choose_python(const std::string& system, const std::filesystem::path& program);

// kInvalidArgument, naming the image and the images that are known, when nothing fits.
Result<Runtime> find_runtime(const RuntimeTable& table, std::string_view image_uri);

}  // namespace atelier::compute
