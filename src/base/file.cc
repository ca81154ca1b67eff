#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/id.h"

namespace atelier {
namespace fs = std::filesystem;

namespace {

std::string quoted(std::string_view call, const fs::path& path) {
  return std::string{call} + " '" + path.string() + "'";
}

enum class Durable { kNo, kYes };

Result<void> write_then(const fs::path& path, std::string_view bytes, mode_t mode, bool replace,
                        Durable durable) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path{"."};
  const fs::path temporary = folder / ("." + path.filename().string() + "." + random_id() + ".tmp");
  {
    UniqueFd fd = TRY(open_file(temporary, O_WRONLY | O_CREAT | O_EXCL, mode));
    Result<void> written = write_all(fd.get(), bytes);
    if (written && durable == Durable::kYes && fsync(fd.get()) != 0)
      written = error_from_errno(quoted("fsync", temporary), errno);
    if (!written) {
      unlink(temporary.c_str());
      return written;
    }
  }
  // link(2) refuses an existing name where rename(2) would replace it.
  const int status =
      replace ? rename(temporary.c_str(), path.c_str()) : link(temporary.c_str(), path.c_str());
  const int cause = errno;
  if (!replace || status != 0) unlink(temporary.c_str());
  if (status != 0) return error_from_errno(quoted("write", path), cause);
  return durable == Durable::kYes ? sync_folder(folder) : Result<void>{};
}

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

Result<UniqueFd> open_file(const fs::path& path, int flags, mode_t mode) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return error_from_errno(quoted("open", path), errno);
  return UniqueFd{fd};
}

Result<std::string> read_file(const fs::path& path, std::size_t max_bytes) {
  UniqueFd fd = TRY(open_file(path, O_RDONLY));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return error_from_errno(quoted("stat", path), errno);
  std::string bytes;
  // Files of /proc say 0, so the size is a hint and one byte more shows the end.
  std::size_t capacity = static_cast<std::size_t>(info.st_size) + 1;
  while (true) {
    if (bytes.size() > max_bytes) {
      return Error{Code::kResourceExhausted, quoted("read", path) + ": larger than the limit of " +
                                                 std::to_string(max_bytes) + " bytes"};
    }
    const std::size_t used = bytes.size();
    bytes.resize(used + std::max<std::size_t>(capacity, 4096));
    const ssize_t got = read(fd.get(), bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno != EINTR) return error_from_errno(quoted("read", path), errno);
    bytes.resize(used + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return bytes;
    capacity = 65536;
  }
}

Result<void> write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put < 0) {
      if (errno == EINTR) continue;
      return error_from_errno("write", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Result<void> write_all(int fd, std::string_view bytes) {
  return write_all(fd, std::as_bytes(std::span{bytes.data(), bytes.size()}));
}

Result<void> write_file_durably(const fs::path& path, std::string_view bytes, mode_t mode) {
  return write_then(path, bytes, mode, true, Durable::kYes);
}

Result<void> replace_file(const fs::path& path, std::string_view bytes, mode_t mode) {
  return write_then(path, bytes, mode, true, Durable::kNo);
}

Result<void> create_file_durably(const fs::path& path, std::string_view bytes, mode_t mode) {
  return write_then(path, bytes, mode, false, Durable::kYes);
}

Result<void> sync_folder(const fs::path& folder) {
  UniqueFd fd = TRY(open_file(folder, O_RDONLY | O_DIRECTORY));
  if (fsync(fd.get()) != 0) return error_from_errno(quoted("fsync", folder), errno);
  return {};
}

Result<void> make_folders(const fs::path& path, mode_t mode) {
  if (path.empty()) return {};
  if (mkdir(path.c_str(), mode) == 0) return {};
  if (errno == ENOENT) {
    TRY(make_folders(path.parent_path(), mode));
    if (mkdir(path.c_str(), mode) == 0) return {};
  }
  const int cause = errno;
  std::error_code ignored;
  if (cause == EEXIST && fs::is_directory(path, ignored)) return {};
  return error_from_errno(quoted("mkdir", path), cause);
}

Result<UniqueFd> lock_file(const fs::path& path) {
  UniqueFd fd = TRY(open_file(path, O_RDWR | O_CREAT, 0600));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return Error{Code::kFailedPrecondition, quoted("lock", path) + ": held by another process"};
    }
    return error_from_errno(quoted("lock", path), errno);
  }
  return fd;
}

Result<TempFolder> TempFolder::create(const fs::path& parent) {
  std::error_code failure;
  const fs::path base = parent.empty() ? fs::temp_directory_path(failure) : parent;
  if (failure) return error_from_errno("temporary folder", failure.value());
  std::string name = (base / "atelier-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return error_from_errno(quoted("mkdtemp", name), errno);
  return TempFolder{name};
}

TempFolder::~TempFolder() {
  if (!path_.empty())
    ignore_error(remove_tree(path_), "a temporary folder left behind harms nobody");
}

}  // namespace atelier
