#include "agent/sync_records.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/hash.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

std::string line(char kind, const std::string& name, const FileVersion& version) {
  // Names may have any bytes.
  return fmt::format("{} {} {} {} {} {}\n", kind, version.size, version.inode, version.modified,
                     version.changed, to_hex(name));
}

template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end == text.data() + text.size() || *end != ' ') return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return true;
}

// False for a line that no agent wrote whole.
bool take_in(std::string_view text, SyncRecords::Read& read) {
  if (text.size() < 2 || text[1] != ' ') return false;
  const char kind = text[0];
  text.remove_prefix(2);
  FileVersion version;
  if (!take_number(text, version.size) || !take_number(text, version.inode) ||
      !take_number(text, version.modified) || !take_number(text, version.changed)) {
    return false;
  }
  const Result<std::string> name = from_hex(text);
  if (!name) return false;
  if (kind == 'Q') {
    read.queued.insert_or_assign(*name, version);
  } else if (kind == 'C') {
    read.copied.insert_or_assign(*name, version);
    read.queued.erase(*name);
  } else if (kind == 'R') {
    read.copied.erase(*name);
    read.queued.erase(*name);
  } else if (kind == 'B') {
    read.restoring = true;
  } else {
    return false;
  }
  return true;
}

}  // namespace

Result<SyncRecords::Read> SyncRecords::read(const std::filesystem::path& file) {
  const std::string text = TRY(read_file(file, kMaxBytes));
  Read read;
  for (std::size_t start = 0;;) {
    const std::size_t end = text.find('\n', start);
    if (end == std::string::npos) return read;
    if (!take_in(std::string_view{text}.substr(start, end - start), read)) return read;
    start = end + 1;
  }
}

Result<SyncRecords> SyncRecords::create(const std::filesystem::path& file, const Read& known) {
  std::string text = known.restoring ? line('B', "", {}) : "";
  for (const auto& [name, version] : known.copied) text += line('C', name, version);
  for (const auto& [name, version] : known.queued) text += line('Q', name, version);
  TRY(replace_file(file, text, 0600));
  return SyncRecords{TRY(open_file(file, O_WRONLY | O_APPEND)), text.size()};
}

Result<void> SyncRecords::append(char kind, const std::string& name, const FileVersion& version) {
  ++lines_;
  const std::string text = line(kind, name, version);
  Result<void> written = write_all(fd_.get(), text);
  if (written) {
    bytes_ += text.size();
  } else if (ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) {
    // A full disk may have taken half of the line: the next one must not be glued to it.
    return error_from_errno("cut the torn end of the records of copies", errno);
  }
  return written;
}

Result<void> SyncRecords::queued(const std::string& name, const FileVersion& version) {
  return append('Q', name, version);
}

Result<void> SyncRecords::copied(const std::string& name, const FileVersion& version) {
  return append('C', name, version);
}

Result<void> SyncRecords::removed(const std::string& name) { return append('R', name, {}); }

}  // namespace atelier::agent
