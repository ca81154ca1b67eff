#include "compute/packages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "base/file.h"

namespace atelier::compute {
namespace fs = std::filesystem;
namespace {

constexpr const char* kInside = "/opt/packages";
constexpr std::size_t kMaxText = std::size_t{64} << 10;
constexpr std::string_view kNoIndex = "[global]\nno-index = true\n";

bool is_address(std::string_view words) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (words.starts_with(scheme) && words.size() > scheme.size()) return true;
  }
  return false;
}

// A line break would begin another setting of pip's configuration.
bool is_one_line(std::string_view words) {
  return std::ranges::none_of(words, [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

std::string host_configuration() {
  for (const char* path : {"/etc/pip.conf", "/etc/xdg/pip/pip.conf"}) {
    Result<std::string> text = read_file(path, kMaxText);
    if (text) return *std::move(text);
  }
  return {};
}

// "3.11" of the environment's lib/python3.11; empty when `python` is of no virtual environment.
std::string version_of_environment(const fs::path& prefix) {
  std::error_code failure;
  if (!fs::exists(prefix / "pyvenv.cfg", failure)) return {};
  for (const auto& entry : fs::directory_iterator(prefix / "lib", failure)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("python3.")) return name.substr(6);
  }
  return {};
}

void choose_folder(const fs::path& python, const std::string& base, PipSetup& setup) {
  const std::string folder = base + "/.python";
  setup.bin_folder = folder + "/bin";
  const std::string version = version_of_environment(python.parent_path().parent_path());
  if (version.empty()) {
    // Debian's pip refuses to touch the machine's packages without the third word (PEP 668); with
    // PYTHONUSERBASE it does not touch them.
    setup.environment.insert(
        {{"PYTHONUSERBASE", folder}, {"PIP_USER", "1"}, {"PIP_BREAK_SYSTEM_PACKAGES", "1"}});
    return;
  }
  // A virtual environment has no packages of the user.
  setup.environment["PIP_PREFIX"] = folder;
  setup.environment["PYTHONPATH"] = fmt::format("{}/lib/python{}/site-packages", folder, version);
}

void use_folder(const std::string& location, PipSetup& setup) {
  std::error_code failure;
  if (!fs::is_directory(location, failure)) {
    setup.configuration = kNoIndex;
    setup.advice = fmt::format(
        "the server's folder of packages, '{}', is not there; its operator can name another one "
        "(atelier serve --packages)",
        location);
    return;
  }
  setup.mounts.push_back({location, kInside, false});
  const bool index = fs::is_directory(fs::path{location} / "simple", failure);
  setup.configuration = index
                            ? fmt::format("[global]\nindex-url = file://{}/simple\n", kInside)
                            : fmt::format("[global]\nno-index = true\nfind-links = {}\n", kInside);
  setup.advice = fmt::format(
      "packages come from the server's folder {} alone, seen here as {}, and from source_dir "
      "(requirements.txt with --find-links .)",
      location, kInside);
}

void use_network(const PackageSource& source, PipSetup& setup) {
  if (source.kind == PackageSource::Kind::kIndex) {
    setup.configuration = fmt::format("[global]\nindex-url = {}\n", source.location);
    return;
  }
  setup.configuration = host_configuration();
  for (const char* name :
       {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_PROXY"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) setup.environment[name] = value;
  }
}

}  // namespace

Result<PackageSource> parse_package_source(std::string_view words) {
  if (words == "none") return PackageSource{};
  if (words == "host") return PackageSource{PackageSource::Kind::kHost, {}};
  if (is_one_line(words)) {
    if (is_address(words)) {
      return PackageSource{PackageSource::Kind::kIndex, std::string{words}};
    }
    if (words.starts_with('/')) {
      return PackageSource{PackageSource::Kind::kFolder, std::string{words}};
    }
  }
  return Error{Code::kInvalidArgument,
               fmt::format("'{}' is no source of packages: use none, host (as pip of this host is "
                           "configured), the http:// or https:// address of an index, or the "
                           "absolute path of a folder of wheels",
                           words)};
}

std::string to_words(const PackageSource& source) {
  switch (source.kind) {
    case PackageSource::Kind::kNone:
      return "none";
    case PackageSource::Kind::kHost:
      return "host";
    case PackageSource::Kind::kIndex:
    case PackageSource::Kind::kFolder:
      break;
  }
  return source.location;
}

Result<PackageSource> load_package_source(const fs::path& folder) {
  const Result<std::string> text = read_file(folder / "packages", kMaxText);
  if (!text && text.error().code == Code::kNotFound) return PackageSource{};
  if (!text) return text.error();
  Result<PackageSource> source = parse_package_source(text->substr(0, text->find('\n')));
  if (!source) return source.error().within((folder / "packages").string());
  return source;
}

Result<void> store_package_source(const fs::path& folder, const PackageSource& source) {
  // 0600: an address may hold the password of the index.
  return write_file_durably(folder / "packages", to_words(source) + "\n", 0600);
}

PipSetup pip_setup(const PackageSource& source, const fs::path& python, const std::string& base,
                   bool network_isolation) {
  PipSetup setup;
  setup.environment = {{"PIP_NO_CACHE_DIR", "1"}, {"PIP_DISABLE_PIP_VERSION_CHECK", "1"}};
  choose_folder(python, base, setup);
  if (source.kind == PackageSource::Kind::kFolder) {
    use_folder(source.location, setup);
  } else if (source.kind == PackageSource::Kind::kNone) {
    setup.configuration = kNoIndex;
    setup.advice =
        "this server has no package index: put the packages into source_dir as wheels "
        "(requirements.txt with --find-links .), or have its operator name one (atelier serve "
        "--packages)";
  } else if (network_isolation) {
    setup.configuration = kNoIndex;
    setup.advice =
        "EnableNetworkIsolation is on, so pip cannot reach a package index: put the packages into "
        "source_dir as wheels (requirements.txt with --find-links .), or switch the isolation off";
  } else {
    use_network(source, setup);
  }
  return setup;
}

}  // namespace atelier::compute
