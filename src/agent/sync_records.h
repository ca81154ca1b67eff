// What an agent has told its successor about a folder's copy in S3: a file of lines, one for each
// copy that began, ended, or was removed. It survives kill -9 of the agent (not a power cut, after
// which files are copied that may be there already). A torn last line is left out.
#pragma once

#include <filesystem>
#include <string>

#include "agent/sync_ledger.h"
#include "base/file.h"
#include "base/result.h"

namespace atelier::agent {

class SyncRecords {
 public:
  struct Read {
    Versions copied{};
    Versions queued{};       // begun and not ended
    bool restoring = false;  // a restore has begun and not ended
  };
  // kNotFound when there are none: nothing was ever copied.
  static Result<Read> read(const std::filesystem::path& file);
  // Begins anew with what is known.
  static Result<SyncRecords> create(const std::filesystem::path& file, const Read& known);

  Result<void> queued(const std::string& name, const FileVersion& version);
  Result<void> copied(const std::string& name, const FileVersion& version);
  Result<void> removed(const std::string& name);
  // Lines since create(); after many of them it is time for another.
  [[nodiscard]] std::size_t lines() const { return lines_; }

 private:
  SyncRecords(UniqueFd fd, std::size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  Result<void> append(char kind, const std::string& name, const FileVersion& version);
  UniqueFd fd_;
  std::size_t bytes_;  // of the file, up to the end of the last whole line
  std::size_t lines_ = 0;
};

}  // namespace atelier::agent
