// Files and folders: descriptors that close themselves, whole-file reads, and writes that survive a
// crash. "Durable" means: after the call returns, a power cut leaves either the old or the new
// file.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace atelier {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }
  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// open(2) with O_CLOEXEC; the error names the path.
Result<UniqueFd> open_file(const std::filesystem::path& path, int flags, mode_t mode = 0644);

// Reads the whole file; more than `max_bytes` is kResourceExhausted.
Result<std::string> read_file(const std::filesystem::path& path,
                              std::size_t max_bytes = std::size_t{1} << 30);

// Writes all bytes to `fd`, across short writes and EINTR.
Result<void> write_all(int fd, std::span<const std::byte> bytes);
Result<void> write_all(int fd, std::string_view bytes);

// Replaces `path` durably: temporary file in the same folder, fsync, rename, fsync of the folder.
Result<void> write_file_durably(const std::filesystem::path& path, std::string_view bytes,
                                mode_t mode = 0644);

// Replaces `path` whole or not at all for every reader, but not durably: for what is written anew
// after a power cut.
Result<void> replace_file(const std::filesystem::path& path, std::string_view bytes,
                          mode_t mode = 0644);

// Creates `path` with `bytes` durably, or kAlreadyExists if something is there.
Result<void> create_file_durably(const std::filesystem::path& path, std::string_view bytes,
                                 mode_t mode = 0644);

// fsync of a folder, so that renames and creations in it are durable.
Result<void> sync_folder(const std::filesystem::path& folder);

// mkdir -p. New folders get `mode`.
Result<void> make_folders(const std::filesystem::path& path, mode_t mode = 0755);

// rm -rf of `path`; a path that is not there is fine. Does not follow symbolic links.
Result<void> remove_tree(const std::filesystem::path& path);

// Takes an exclusive flock on `path` (created when missing) for the life of the descriptor;
// kFailedPrecondition when another process holds it.
Result<UniqueFd> lock_file(const std::filesystem::path& path);

// A folder under $TMPDIR (or `parent`) that is removed with the object.
class TempFolder {
 public:
  static Result<TempFolder> create(const std::filesystem::path& parent = {});
  TempFolder(TempFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TempFolder& operator=(TempFolder&&) = delete;
  ~TempFolder();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  explicit TempFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace atelier
