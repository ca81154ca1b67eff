// The record of calls: who asked for what, from where, and what came of it. JSON Lines in a folder,
// audit.jsonl and older ones beside it (audit.1.jsonl is the newest of those), bounded as a whole.
// Never a secret, a body or a query: the names of actions and resources only.
//
// Refusals of callers that nobody knows go into files of their own, unknown.jsonl and
// unknown.1.jsonl, so that a stranger cannot push the record of the others away: the first one of
// an address in a minute as a line, with the number of those of the minute before that had none.
//
// A line is in the file (not yet on the disk) when its call is answered. A disk that is full costs
// lines, not calls; the log says so once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/time.h"

namespace atelier::api {

struct AuditRecord {
  Time time{};
  std::string_view principal{};   // ARN; empty when the signature was not right
  std::string_view access_key{};  // as the caller names it
  std::string_view action{};      // "sagemaker:CreateTrainingJob"
  std::string_view resource{};    // ARN, or "*"
  int status = 0;                 // HTTP
  std::string_view error{};       // its code; empty when the call was carried out
  std::string_view source{};      // "127.0.0.1:51234"
  std::string_view request_id{};
  bool tls = false;
  // What else is to be known, names only: why it was refused, the source of a copy, the keys that
  // were refused of many.
  std::string_view detail{};
};

struct AuditLimits {
  std::uint64_t file_bytes = std::uint64_t{64} << 20;
  unsigned files = 8;                                         // with the current one
  std::uint64_t unknown_file_bytes = std::uint64_t{1} << 20;  // two files
};

class AuditLog {
 public:
  static Result<std::unique_ptr<AuditLog>> open(std::filesystem::path folder,
                                                AuditLimits limits = {});
  // From any thread.
  void write(const AuditRecord& record);

 private:
  // One file and the older ones beside it.
  struct Series {
    std::string name;
    std::uint64_t file_bytes = 0;
    unsigned files = 0;
    UniqueFd file{};
    std::uint64_t size = 0;
    bool torn = false;  // the last line may be half there
  };
  // Refusals of an address that nobody knows.
  struct Stranger {
    Time last_line{};
    std::uint64_t without_line = 0;
  };
  AuditLog(std::filesystem::path folder, AuditLimits limits);
  Result<void> open_current(Series& series);
  Result<void> rotate(Series& series);
  Result<void> append(Series& series, const std::string& line);
  // Nothing when the line is left out.
  std::optional<std::uint64_t> count_stranger(const AuditRecord& record);

  const std::filesystem::path folder_;
  std::mutex mutex_;  // guards what follows
  Series calls_, unknown_;
  std::map<std::string, Stranger, std::less<>> strangers_;
  bool complained_ = false;
};

// Paths of the record's files that are there, the oldest first: of callers that are known, or of
// the others.
std::vector<std::filesystem::path> audit_files(const std::filesystem::path& folder,
                                               bool of_unknown = false);

}  // namespace atelier::api
