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

// A file of lines that is only added to. What a full disk cuts off stays pending and is written
// once there is room, from the byte on where it was cut.
class LineFile {
 public:
  // A torn line at the end (kill -9, full disk) is cut off first. `what` names it in errors.
  static Result<LineFile> open(const std::filesystem::path& path, std::string what);
  // Whole lines, with their ends. They reach the file with flush(); a batch costs one write.
  void append(std::string_view lines) { pending_ += lines; }
  Result<void> flush();
  Result<void> sync();                                                   // fsync
  [[nodiscard]] std::size_t pending() const { return pending_.size(); }  // bytes

 private:
  LineFile(UniqueFd fd, std::string what) : fd_(std::move(fd)), what_(std::move(what)) {}
  UniqueFd fd_;
  std::string what_;
  std::string pending_;
};

class LogWriter {
 public:
  // Opens to append; a torn record at the end is cut off first.
  static Result<LogWriter> open(const std::filesystem::path& path);
  // Returns the time that the line has in the log: it is never before that of an earlier line.
  Time append(Time time, std::string_view line);
  Result<void> flush() { return file_.flush(); }
  Result<void> sync() { return file_.sync(); }
  [[nodiscard]] std::size_t pending() const { return file_.pending(); }

 private:
  explicit LogWriter(LineFile file) : file_(std::move(file)) {}
  LineFile file_;
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
