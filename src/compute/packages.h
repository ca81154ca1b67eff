// Where pip of a job finds packages: nowhere (what source_dir brings can be installed), in a folder
// of the operator, at an index that the operator names, or wherever pip of this host looks. A job
// never reaches an index that nobody chose.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/sandbox.h"

namespace atelier::compute {

struct PackageSource {
  enum class Kind {
    kNone,
    kHost,    // as /etc/pip.conf and the server's PIP_INDEX_URL say
    kIndex,   // `location` is an http:// or https:// address (PEP 503)
    kFolder,  // `location` is a folder of wheels, or one with an index in its folder "simple"
  };
  Kind kind = Kind::kNone;
  std::string location;
};

// "none", "host", an address or an absolute path, as the operator writes it; kInvalidArgument says
// what it could be. to_words() is the way back.
Result<PackageSource> parse_package_source(std::string_view words);
std::string to_words(const PackageSource& source);

// The operator's choice, kept in `folder` (the server's) for later starts; kNone where none was
// made.
Result<PackageSource> load_package_source(const std::filesystem::path& folder);
Result<void> store_package_source(const std::filesystem::path& folder, const PackageSource& source);

struct PipSetup {
  std::map<std::string, std::string> environment;
  std::string configuration;  // the text of /etc/pip.conf inside
  std::vector<BindMount> mounts;
  std::string bin_folder;  // commands of what was installed
  std::string advice;      // where the packages of a failed install could come from; empty: no idea
};
// For a program that `python` runs. pip runs without root there: it installs to `base`/.python,
// which Python searches before the machine's packages.
PipSetup pip_setup(const PackageSource& source, const std::filesystem::path& python,
                   const std::string& base, bool network_isolation);

}  // namespace atelier::compute
