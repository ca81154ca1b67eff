// The log of one instance of a job: an append-only file of timed lines, written by the agent and
// read by the control plane at the same time. The byte offset of a record is its position for ever,
// so it serves as a paging token; nothing is copied elsewhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/time.h"

namespace atelier::agent {

struct LogEvent {
  Time time{};          // when the line was read from the program; never before its predecessor's
  std::string message;  // without the line end; longer lines are cut into records of 256 KiB
  std::uint64_t offset = 0;  // of its record
};

class LogWriter {
 public:
  // Opens to append; a torn record at the end (kill -9, full disk) is cut off first.
  static Result<LogWriter> open(const std::filesystem::path& path);
  // Lines reach the file with flush(); a batch costs one write.
  void append(Time time, std::string_view line);
  Result<void> flush();
  Result<void> sync();  // fsync

 private:
  explicit LogWriter(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  std::string pending_;
  Time last_{};
};

struct LogPage {
  std::vector<LogEvent> events;
  std::uint64_t next_offset = 0;      // to go on forward
  std::uint64_t previous_offset = 0;  // of the first event here: to go on backward
};

// Records from `offset` on, up to the limits. A file that is not there has no events.
Result<LogPage> read_log(const std::filesystem::path& path, std::uint64_t offset,
                         std::size_t max_events, std::size_t max_bytes);
// The last records that end before `offset` (use UINT64_MAX for the end of the file).
Result<LogPage> read_log_backward(const std::filesystem::path& path, std::uint64_t offset,
                                  std::size_t max_events, std::size_t max_bytes);
// The offset of the first record at or after `time`; by bisection.
Result<std::uint64_t> seek_log(const std::filesystem::path& path, Time time);

}  // namespace atelier::agent
