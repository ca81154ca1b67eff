#include "agent/local_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

namespace atelier::agent {
namespace {

constexpr std::string_view kMl = "/opt/ml";

// A folder there, or around or below them, would hide what the sandbox or the job needs.
constexpr std::string_view kTaken[] = {"/usr",         "/bin",
                                       "/sbin",        "/lib",
                                       "/lib32",       "/lib64",
                                       "/libx32",      "/etc",
                                       "/proc",        "/dev",
                                       "/sys",         "/opt/ml/input",
                                       "/opt/ml/code", "/opt/ml/sagemaker/warmpoolcache",
                                       "/opt/warm",    "/opt/packages",
                                       "/var/tmp"};
// These only as a whole: a folder below them is fine.
constexpr std::string_view kTakenAsAWhole[] = {"/",    "/opt", kMl,   "/opt/ml/sagemaker",
                                               "/tmp", "/run", "/var"};

bool is_at_or_below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

Error refused(std::string_view path, std::string_view why) {
  return Error{Code::kInvalidArgument, fmt::format("'{}' {}", path, why)};
}

}  // namespace

Result<LocalPath> place_local_path(std::string_view given) {
  std::string_view path = given;
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  if (path.empty() || path.front() != '/') {
    return refused(given, "has to be an absolute path, such as /opt/ml/checkpoints");
  }
  if (path.size() >= PATH_MAX) {
    return refused(given.substr(0, 80), fmt::format("... has {} bytes; a path has at most {}",
                                                    given.size(), PATH_MAX - 1));
  }
  if (path.find('\0') != std::string_view::npos) return refused(given, "has a zero byte");
  for (std::size_t start = 1; start < path.size();) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (part.empty() || part == "." || part == "..") {
      return refused(given, "has to be written without '//', '.' and '..'");
    }
    if (part.size() > NAME_MAX) {
      return refused(given, fmt::format("has a name of {} bytes; a name has at most {}",
                                        part.size(), NAME_MAX));
    }
    start = end + 1;
  }
  for (const std::string_view taken : kTaken) {
    if (is_at_or_below(path, taken)) {
      return refused(given, fmt::format("is or lies below {}, which has another use", taken));
    }
  }
  if (std::ranges::find(kTakenAsAWhole, path) != std::end(kTakenAsAWhole)) {
    return refused(given, "has another use; name a folder below it");
  }
  if (is_at_or_below(path, kMl)) return LocalPath{std::string{path.substr(kMl.size() + 1)}, {}};
  return LocalPath{{}, std::string{path}};
}

}  // namespace atelier::agent
