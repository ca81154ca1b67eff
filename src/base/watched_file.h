// Tells whether a file was changed since one last looked, by one stat: for files that an operator
// edits while a server runs. Writers replace the file by rename, so that a look sees a whole one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>

namespace atelier {

class WatchedFile {
 public:
  explicit WatchedFile(std::filesystem::path path) : path_(std::move(path)) {}
  // True until taken() is called, and then whenever the file is another one than it was at the look
  // before that (or has gone, or come). Look first and read then: a change between the two is seen
  // by the next look. One thread at a time.
  bool changed();
  // What the last look saw was read and counts. Without it the next look says changed() again, so
  // that a change which could not be read now (no descriptor is free) is not lost.
  void taken() { taken_ = seen_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  struct Version {
    ino_t inode = 0;
    std::int64_t modified_ns = 0;
    std::int64_t size = -1;  // there is no file
    bool operator==(const Version&) const = default;
  };
  std::filesystem::path path_;
  Version seen_;  // at the last look
  std::optional<Version> taken_;
};

}  // namespace atelier
