#include "api/audit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "api/text.h"
#include "base/json.h"
#include "base/log.h"

namespace atelier::api {
namespace fs = std::filesystem;
namespace {

constexpr const char* kCurrent = "audit.jsonl";
constexpr unsigned kMostFiles = 1000;
constexpr std::size_t kMostOfAText = 2048;

std::string older(unsigned number) { return fmt::format("audit.{}.jsonl", number); }

std::string line_of(const AuditRecord& record) {
  json::object line;
  line["time"] = format_iso8601(record.time, true);
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) line[name] = value.substr(0, kMostOfAText);
  };
  add("principal", record.principal);
  add("access_key", record.access_key);
  add("action", record.action);
  add("resource", record.resource);
  line["status"] = record.status;
  add("error", record.error);
  add("source", record.source);
  add("request_id", record.request_id);
  if (record.tls) line["tls"] = true;
  return to_valid_utf8(json::serialize(line)) + "\n";
}

}  // namespace

Result<std::unique_ptr<AuditLog>> AuditLog::open(fs::path folder, AuditLimits limits) {
  TRY(make_folders(folder, 0700));
  std::unique_ptr<AuditLog> log{new AuditLog{std::move(folder), limits}};
  TRY(log->open_current());
  return log;
}

Result<void> AuditLog::open_current() {
  file_ = TRY(open_file(folder_ / kCurrent, O_RDWR | O_CREAT | O_APPEND, 0600));
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) return error_from_errno("stat audit.jsonl", errno);
  size_ = static_cast<std::uint64_t>(info.st_size);
  // A server that was killed within a line has left it half there.
  char last = '\n';
  torn_ = size_ > 0 && pread(file_.get(), &last, 1, info.st_size - 1) == 1 && last != '\n';
  return {};
}

// Renames from the oldest on, so that a kill in between leaves a gap in the numbers and loses none.
Result<void> AuditLog::rotate() {
  std::error_code failure;
  fs::remove(folder_ / older(limits_.files - 1), failure);
  for (unsigned number = limits_.files - 1; number > 1; --number) {
    fs::rename(folder_ / older(number - 1), folder_ / older(number), failure);
  }
  fs::rename(folder_ / kCurrent, folder_ / older(1), failure);
  if (failure) {
    return Error{Code::kIo,
                 fmt::format("rename '{}': {}", (folder_ / kCurrent).string(), failure.message())};
  }
  return open_current();
}

Result<void> AuditLog::append(const std::string& line) {
  if (size_ > 0 && size_ + line.size() > limits_.file_bytes) TRY(rotate());
  const std::string whole = torn_ ? "\n" + line : line;
  torn_ = true;
  TRY(write_all(file_.get(), whole));
  torn_ = false;
  size_ += whole.size();
  return {};
}

void AuditLog::write(const AuditRecord& record) {
  const std::string line = line_of(record);
  const std::lock_guard lock{mutex_};
  const Result<void> written = append(line);
  if (!written && !complained_) {
    log::error("calls are not recorded: " + written.error().message);
  }
  complained_ = !written;
}

std::vector<fs::path> audit_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (unsigned number = kMostFiles; number > 0; --number) {
    if (fs::exists(folder / older(number), failure)) files.push_back(folder / older(number));
  }
  if (fs::exists(folder / kCurrent, failure)) files.push_back(folder / kCurrent);
  return files;
}

}  // namespace atelier::api
