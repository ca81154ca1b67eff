// The record of calls: who asked for what, from where, and what came of it. JSON Lines in a folder,
// audit.jsonl and older ones beside it (audit.1.jsonl is the newest of those), bounded as a whole.
// Never a secret, a body or a query: the names of actions and resources only.
//
// A line is in the file (not yet on the disk) when its call is answered. A disk that is full costs
// lines, not calls; the log says so once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
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
};

struct AuditLimits {
  std::uint64_t file_bytes = std::uint64_t{64} << 20;
  unsigned files = 8;  // with the current one
};

class AuditLog {
 public:
  static Result<std::unique_ptr<AuditLog>> open(std::filesystem::path folder,
                                                AuditLimits limits = {});
  // From any thread.
  void write(const AuditRecord& record);

 private:
  AuditLog(std::filesystem::path folder, AuditLimits limits)
      : folder_(std::move(folder)), limits_(limits) {}
  Result<void> open_current();
  Result<void> rotate();
  Result<void> append(const std::string& line);

  const std::filesystem::path folder_;
  const AuditLimits limits_;
  std::mutex mutex_;  // guards what follows
  UniqueFd file_;
  std::uint64_t size_ = 0;
  bool torn_ = false;  // the last line may be half there
  bool complained_ = false;
};

// Paths of the record's files that are there, the oldest first.
std::vector<std::filesystem::path> audit_files(const std::filesystem::path& folder);

}  // namespace atelier::api
