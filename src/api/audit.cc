#include "api/audit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <utility>
#include <vector>

#include "api/text.h"
#include "base/json.h"
#include "base/log.h"

namespace atelier::api {
namespace fs = std::filesystem;
namespace {

constexpr const char* kCalls = "audit";
constexpr const char* kUnknown = "unknown";
constexpr unsigned kMostFiles = 1000;
constexpr std::size_t kMostOfAText = 2048;  // as it is written, with its escapes
constexpr std::chrono::minutes kOneLine{1};
// Addresses that are told apart; the others are one.
constexpr std::size_t kMostStrangers = 1024;

std::string current(std::string_view name) { return fmt::format("{}.jsonl", name); }
std::string older(std::string_view name, unsigned number) {
  return fmt::format("{}.{}.jsonl", name, number);
}

// As much of a text as takes kMostOfAText bytes of a line.
std::string_view cut(std::string_view text) {
  std::size_t written = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    written += c < 0x20 ? 6 : c == '"' || c == '\\' ? 2 : c < 0x80 ? 1 : 3;
    if (written > kMostOfAText) return text.substr(0, i);
  }
  return text;
}

std::string line_of(const AuditRecord& record, std::uint64_t more) {
  json::object line;
  line["time"] = format_iso8601(record.time, true);
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) line[name] = cut(value);
  };
  add("principal", record.principal);
  add("access_key", record.access_key);
  add("action", record.action);
  add("resource", record.resource);
  line["status"] = record.status;
  add("error", record.error);
  add("detail", record.detail);
  add("source", record.source);
  add("request_id", record.request_id);
  if (record.tls) line["tls"] = true;
  if (more > 0) line["without_a_line_before"] = more;
  return to_valid_utf8(json::serialize(line)) + "\n";
}

}  // namespace

AuditLog::AuditLog(fs::path folder, AuditLimits limits)
    : folder_(std::move(folder)),
      calls_{kCalls, limits.file_bytes, limits.files},
      unknown_{kUnknown, limits.unknown_file_bytes, 2} {}

Result<std::unique_ptr<AuditLog>> AuditLog::open(fs::path folder, AuditLimits limits) {
  TRY(make_folders(folder, 0700));
  std::unique_ptr<AuditLog> log{new AuditLog{std::move(folder), limits}};
  TRY(log->open_current(log->calls_));
  TRY(log->open_current(log->unknown_));
  return log;
}

Result<void> AuditLog::open_current(Series& series) {
  series.file = TRY(open_file(folder_ / current(series.name), O_RDWR | O_CREAT | O_APPEND, 0600));
  struct stat info {};
  if (fstat(series.file.get(), &info) != 0) {
    return error_from_errno("stat " + current(series.name), errno);
  }
  series.size = static_cast<std::uint64_t>(info.st_size);
  // A server that was killed within a line has left it half there.
  char last = '\n';
  series.torn =
      series.size > 0 && pread(series.file.get(), &last, 1, info.st_size - 1) == 1 && last != '\n';
  return {};
}

// Renames from the oldest on, so that a kill in between leaves a gap in the numbers and loses none.
Result<void> AuditLog::rotate(Series& series) {
  std::error_code failure;
  const auto path = [&](unsigned number) { return folder_ / older(series.name, number); };
  fs::remove(path(series.files - 1), failure);
  for (unsigned number = series.files - 1; number > 1; --number) {
    fs::rename(path(number - 1), path(number), failure);
  }
  fs::rename(folder_ / current(series.name), path(1), failure);
  if (failure) {
    return Error{Code::kIo,
                 fmt::format("rename '{}': {}", (folder_ / current(series.name)).string(),
                             failure.message())};
  }
  return open_current(series);
}

Result<void> AuditLog::append(Series& series, const std::string& line) {
  if (series.size > 0 && series.size + line.size() > series.file_bytes) TRY(rotate(series));
  const std::string whole = series.torn ? "\n" + line : line;
  series.torn = true;
  TRY(write_all(series.file.get(), whole));
  series.torn = false;
  series.size += whole.size();
  return {};
}

std::optional<std::uint64_t> AuditLog::count_stranger(const AuditRecord& record) {
  // Without the port, which is another for each connection.
  std::string_view address = record.source.substr(0, record.source.rfind(':'));
  if (!strangers_.contains(address) && strangers_.size() >= kMostStrangers) {
    std::erase_if(strangers_, [&](const auto& one) {
      return one.second.without_line == 0 && one.second.last_line + kOneLine <= record.time;
    });
    if (strangers_.size() >= kMostStrangers) address = "others";
  }
  Stranger& stranger = strangers_[std::string{address}];
  if (stranger.last_line != Time{} && record.time < stranger.last_line + kOneLine) {
    ++stranger.without_line;
    return std::nullopt;
  }
  stranger.last_line = record.time;
  return std::exchange(stranger.without_line, 0);
}

void AuditLog::write(const AuditRecord& record) {
  const bool is_known = !record.principal.empty() || record.status < 400;
  const std::lock_guard lock{mutex_};
  std::uint64_t more = 0;
  if (!is_known) {
    const auto counted = count_stranger(record);
    if (!counted) return;
    more = *counted;
  }
  const Result<void> written = append(is_known ? calls_ : unknown_, line_of(record, more));
  if (!written && !complained_) {
    log::error("calls are not recorded: " + written.error().message);
  }
  complained_ = !written;
}

std::vector<fs::path> audit_files(const fs::path& folder, bool of_unknown) {
  const char* name = of_unknown ? kUnknown : kCalls;
  std::vector<fs::path> files;
  std::error_code failure;
  for (unsigned number = kMostFiles; number > 0; --number) {
    if (fs::exists(folder / older(name, number), failure)) {
      files.push_back(folder / older(name, number));
    }
  }
  if (fs::exists(folder / current(name), failure)) files.push_back(folder / current(name));
  return files;
}

}  // namespace atelier::api
