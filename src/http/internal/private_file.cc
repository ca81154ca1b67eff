#include "http/internal/private_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace atelier::http::internal {

Result<std::string> read_private(const std::filesystem::path& path, std::size_t max_bytes) {
  const UniqueFd fd = TRY(open_file(path, O_RDONLY | O_NOFOLLOW));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) {
    return error_from_errno(fmt::format("stat '{}'", path.string()), errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("key file '{}': not a regular file", path.string())};
  }
  if ((info.st_mode & 077) != 0) {
    return Error{Code::kPermissionDenied,
                 fmt::format("key file '{}' can be used by others (mode {:04o}); run: chmod 600 {}",
                             path.string(), info.st_mode & 07777, path.string())};
  }
  if (info.st_uid != geteuid()) {
    return Error{Code::kPermissionDenied, fmt::format("key file '{}' belongs to user {}, not to {}",
                                                      path.string(), info.st_uid, geteuid())};
  }
  if (static_cast<std::size_t>(info.st_size) > max_bytes) {
    return Error{Code::kInvalidArgument,
                 fmt::format("key file '{}': larger than {} bytes", path.string(), max_bytes)};
  }
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  const ssize_t got = pread(fd.get(), bytes.data(), bytes.size(), 0);
  if (got != info.st_size) return error_from_errno(fmt::format("read '{}'", path.string()), EIO);
  return bytes;
}

}  // namespace atelier::http::internal
