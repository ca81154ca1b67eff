// One record is one line of text: 13 digits of milliseconds, a blank, the message, '\n'. A message
// never holds '\n' (append() splits there), so a line end is a record's end wherever reading
// begins: forward, backward and bisection need no index, a torn tail is what has no line end, and
// the file can be read with less and grep.
#include "agent/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>

namespace atelier::agent {
namespace {

constexpr std::size_t kTimeDigits = 13;           // milliseconds until the year 2286
constexpr std::size_t kHeader = kTimeDigits + 1;  // and the blank
constexpr std::size_t kMaxMessage = std::size_t{256} << 10;
constexpr std::size_t kBlock = std::size_t{64} << 10;  // of one pread
constexpr std::uint64_t kLinearSearch = 4096;          // where bisection ends
constexpr std::int64_t kMaxTime = 9'999'999'999'999;

std::optional<Time> parse_time(std::string_view record) {
  if (record.size() < kHeader || record[kTimeDigits] != ' ') return std::nullopt;
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(record.data(), record.data() + kTimeDigits, value);
  if (failure != std::errc{} || end != record.data() + kTimeDigits || value < 0) {
    return std::nullopt;
  }
  return from_epoch_milliseconds(value);
}

// Reads of the file at positions, through one buffered block.
class Source {
 public:
  explicit Source(UniqueFd fd, std::uint64_t size) : fd_(std::move(fd)), size_(size) {}

  // Up to kBlock bytes at `offset`; empty at the end.
  Result<std::string_view> at(std::uint64_t offset) {
    if (offset >= size_) return std::string_view{};
    if (offset < start_ || offset >= start_ + block_.size()) {
      TRY(load(offset, kBlock));
    }
    return std::string_view{block_}.substr(static_cast<std::size_t>(offset - start_));
  }
  // The bytes from `first` to `last`, which are near one another.
  Result<std::string_view> between(std::uint64_t first, std::uint64_t last) {
    if (first < start_ || last > start_ + block_.size()) TRY(load(first, kBlock));
    return std::string_view{block_}.substr(
        static_cast<std::size_t>(first - start_),
        static_cast<std::size_t>(std::min(last, start_ + block_.size()) - first));
  }
  // Up to kBlock bytes that end at `offset`, which is not 0.
  Result<std::string_view> before(std::uint64_t offset) {
    if (offset <= start_ || offset > start_ + block_.size()) {
      TRY(load(offset > kBlock ? offset - kBlock : 0,
               static_cast<std::size_t>(std::min<std::uint64_t>(offset, kBlock))));
    }
    if (offset <= start_) return std::string_view{};
    return std::string_view{block_}.substr(0, static_cast<std::size_t>(offset - start_));
  }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  void set_size(std::uint64_t size) { size_ = size; }

 private:
  Result<void> load(std::uint64_t offset, std::size_t length) {
    block_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(length, size_ - offset)));
    start_ = offset;
    std::size_t done = 0;
    while (done < block_.size()) {
      const ssize_t got = pread(fd_.get(), block_.data() + done, block_.size() - done,
                                static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        block_.clear();
        return error_from_errno("read a job's log", errno);
      }
      if (got == 0) break;  // cut by a writer that repairs a torn tail
      done += static_cast<std::size_t>(got);
    }
    block_.resize(done);
    if (done == 0) size_ = std::min(size_, offset);
    return {};
  }

  UniqueFd fd_;
  std::uint64_t size_;
  std::uint64_t start_ = 0;
  std::string block_;
};

// The offset after the first line end at or after `offset`; the size of the file when there is
// none.
Result<std::uint64_t> after_line_end(Source& source, std::uint64_t offset) {
  while (true) {
    const std::string_view bytes = TRY(source.at(offset));
    if (bytes.empty()) return source.size();
    const std::size_t end = bytes.find('\n');
    if (end != std::string_view::npos) return offset + end + 1;
    offset += bytes.size();
  }
}

// The offset after the last line end that lies wholly before `offset`; 0 when there is none.
Result<std::uint64_t> line_start_before(Source& source, std::uint64_t offset) {
  while (offset > 0) {
    const std::string_view bytes = TRY(source.before(offset));
    if (bytes.empty()) return std::uint64_t{0};
    const std::size_t end = bytes.rfind('\n');
    const std::uint64_t first = offset - bytes.size();
    if (end != std::string_view::npos) return first + end + 1;
    offset = first;
  }
  return std::uint64_t{0};
}

// Opens the log and bounds it to its whole records. Nothing when there is no file.
Result<std::optional<Source>> open_source(const std::filesystem::path& path) {
  Result<UniqueFd> fd = open_file(path, O_RDONLY);
  if (!fd) {
    if (fd.error().code == Code::kNotFound) return std::optional<Source>{};
    return fd.error();
  }
  struct stat info {};
  if (fstat(fd->get(), &info) != 0) return error_from_errno("stat '" + path.string() + "'", errno);
  std::optional<Source> source{std::in_place, *std::move(fd),
                               static_cast<std::uint64_t>(info.st_size)};
  source->set_size(TRY(line_start_before(*source, source->size())));
  return source;
}

// The bytes of the record at `start`, without its line end; it ends at `end`.
Result<std::string> record_bytes(Source& source, std::uint64_t start, std::uint64_t end) {
  std::string record;
  while (start < end) {
    const std::string_view bytes = TRY(source.at(start));
    if (bytes.empty()) break;
    const std::size_t take = std::min<std::size_t>(bytes.size(), end - start);
    record.append(bytes.substr(0, take));
    start += take;
  }
  if (!record.empty()) record.pop_back();
  return record;
}

// Adds the record in [start, end) to the events, unless it is damaged. A line that is no record can
// only come from a damaged disk: it is passed over, and the rest stays readable.
Result<void> take_record(Source& source, std::uint64_t start, std::uint64_t end,
                         std::vector<LogEvent>& events) {
  std::string record = TRY(record_bytes(source, start, end));
  const std::optional<Time> time = parse_time(record);
  if (!time) return {};
  record.erase(0, kHeader);
  events.push_back({*time, std::move(record), start});
  return {};
}

// The time of the record at `start`; nothing when it is damaged.
Result<std::optional<Time>> time_at(Source& source, std::uint64_t start) {
  const std::string_view bytes =
      TRY(source.between(start, std::min(start + kHeader, source.size())));
  return parse_time(bytes);
}

// The time of the first undamaged record in [start, end), with its offset.
struct Timed {
  std::uint64_t offset;
  Time time;
};
Result<std::optional<Timed>> first_timed(Source& source, std::uint64_t start, std::uint64_t end) {
  while (start < end) {
    const std::optional<Time> time = TRY(time_at(source, start));
    if (time) return std::optional<Timed>{{start, *time}};
    start = TRY(after_line_end(source, start));
  }
  return std::optional<Timed>{};
}

}  // namespace

Result<LineFile> LineFile::open(const std::filesystem::path& path, std::string what) {
  UniqueFd fd = TRY(open_file(path, O_RDWR | O_CREAT | O_APPEND, 0644));
  LineFile file{std::move(fd), std::move(what)};
  const std::optional<Source> source = TRY(open_source(path));
  if (!source) return Error{Code::kAborted, "'" + path.string() + "' was removed while opened"};
  if (ftruncate(file.fd_.get(), static_cast<off_t>(source->size())) != 0) {
    return error_from_errno("cut the torn end of '" + path.string() + "'", errno);
  }
  return file;
}

Result<void> LineFile::flush() {
  std::size_t done = 0;
  Result<void> outcome;
  while (done < pending_.size()) {
    const ssize_t put = write(fd_.get(), pending_.data() + done, pending_.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      outcome = error_from_errno("write to " + what_, errno);
      break;
    }
    done += static_cast<std::size_t>(put);
  }
  // What a full disk cut off stays pending, so that a later flush goes on in the middle of the
  // line.
  pending_.erase(0, done);
  return outcome;
}

Result<void> LineFile::sync() {
  TRY(flush());
  if (fdatasync(fd_.get()) != 0) return error_from_errno("fdatasync of " + what_, errno);
  return {};
}

Result<LogWriter> LogWriter::open(const std::filesystem::path& path) {
  LogWriter writer{TRY(LineFile::open(path, "the job's log"))};
  std::optional<Source> source = TRY(open_source(path));
  std::uint64_t end = source ? source->size() : 0;
  while (end > 0) {
    const std::uint64_t start = TRY(line_start_before(*source, end - 1));
    const std::optional<Time> time = TRY(time_at(*source, start));
    if (time) {
      writer.last_ = *time;
      break;
    }
    end = start;
  }
  return writer;
}

Time LogWriter::append(Time time, std::string_view line) {
  last_ = std::clamp(std::max(time, last_), Time{}, from_epoch_milliseconds(kMaxTime));
  char header[kHeader + 1];
  std::snprintf(header, sizeof header, "%013lld ",
                static_cast<long long>(to_epoch_milliseconds(last_)));
  do {
    const std::size_t end = std::min({line.find('\n'), line.size(), kMaxMessage});
    file_.append({header, kHeader});
    file_.append(line.substr(0, end));
    file_.append("\n");
    const bool at_line_end = end < line.size() && line[end] == '\n';
    line.remove_prefix(at_line_end ? end + 1 : end);
  } while (!line.empty());
  return last_;
}

Result<LogPage> read_log(const std::filesystem::path& path, std::uint64_t offset,
                         std::size_t max_events, std::size_t max_bytes) {
  LogPage page;
  std::optional<Source> source = TRY(open_source(path));
  if (!source) return page;
  offset = std::min(offset, source->size());
  // A position that is not the start of a record (a forged token) is moved to the next one.
  if (offset > 0) offset = TRY(after_line_end(*source, offset - 1));
  page.next_offset = page.previous_offset = offset;
  std::size_t bytes = 0;
  while (page.next_offset < source->size() && page.events.size() < max_events) {
    const std::uint64_t end = TRY(after_line_end(*source, page.next_offset));
    if (!page.events.empty() && bytes + (end - page.next_offset) > max_bytes) break;
    bytes += static_cast<std::size_t>(end - page.next_offset);
    TRY(take_record(*source, page.next_offset, end, page.events));
    page.next_offset = end;
  }
  return page;
}

Result<LogPage> read_log_backward(const std::filesystem::path& path, std::uint64_t offset,
                                  std::size_t max_events, std::size_t max_bytes) {
  LogPage page;
  std::optional<Source> source = TRY(open_source(path));
  if (!source) return page;
  offset = TRY(line_start_before(*source, std::min(offset, source->size())));
  page.next_offset = page.previous_offset = offset;
  std::size_t bytes = 0;
  while (page.previous_offset > 0 && page.events.size() < max_events) {
    const std::uint64_t start = TRY(line_start_before(*source, page.previous_offset - 1));
    if (!page.events.empty() && bytes + (page.previous_offset - start) > max_bytes) break;
    bytes += static_cast<std::size_t>(page.previous_offset - start);
    TRY(take_record(*source, start, page.previous_offset, page.events));
    page.previous_offset = start;
  }
  std::reverse(page.events.begin(), page.events.end());
  return page;
}

Result<std::uint64_t> seek_log(const std::filesystem::path& path, Time time) {
  std::optional<Source> source = TRY(open_source(path));
  if (!source) return std::uint64_t{0};
  // Every record that starts before `low` is earlier than `time`; `answer` is the first known one
  // that is not, and no other record starts at `high` or after it and before `answer`.
  std::uint64_t low = 0;
  std::uint64_t high = source->size();
  std::uint64_t answer = source->size();
  while (high - low > kLinearSearch) {
    const std::uint64_t middle = low + (high - low) / 2;
    const std::uint64_t start = TRY(after_line_end(*source, middle));
    const std::optional<Timed> found = TRY(first_timed(*source, start, high));
    if (!found) {
      high = middle + 1;
    } else if (found->time < time) {
      low = found->offset;
    } else {
      answer = found->offset;
      high = middle + 1;
    }
  }
  while (low < high) {
    const std::optional<Timed> found = TRY(first_timed(*source, low, high));
    if (!found) break;
    if (found->time >= time) return found->offset;
    low = TRY(after_line_end(*source, found->offset));
  }
  return answer;
}

}  // namespace atelier::agent
