#include "jobs/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "agent/spec.h"
#include "base/file.h"
#include "base/json.h"

namespace atelier::jobs {
namespace {

constexpr off_t kTail = off_t{8} << 20;

// Whole lines of the last kTail bytes; a torn last line is left out.
std::string tail(const std::filesystem::path& path) {
  const Result<UniqueFd> fd = open_file(path, O_RDONLY);
  if (!fd) return {};  // a job without metrics
  const off_t size = lseek(fd->get(), 0, SEEK_END);
  if (size <= 0) return {};
  const off_t start = std::max(off_t{0}, size - kTail);
  std::string bytes(static_cast<std::size_t>(size - start), '\0');
  const ssize_t got = pread(fd->get(), bytes.data(), bytes.size(), start);
  bytes.resize(static_cast<std::size_t>(std::max(got, ssize_t{0})));
  const std::size_t last = bytes.rfind('\n');
  bytes.resize(last == std::string::npos ? 0 : last + 1);
  if (start > 0) bytes.erase(0, std::min(bytes.find('\n'), bytes.size() - 1) + 1);
  return bytes;
}

}  // namespace

namespace {

constexpr std::size_t kMostLine = std::size_t{1} << 20;  // a longer line is damage, and ends it

struct Line {
  std::string name;
  MetricSample sample;
};

std::optional<Line> parse_line(std::string_view text) {
  const Result<json::value> value = parse_json(text);
  if (!value) return std::nullopt;
  const auto time = find_int(*value, "t");
  auto name = find_string(*value, "n");
  const auto number = find_number(*value, "v");
  if (!time || !name || !number) return std::nullopt;
  return Line{*std::move(name), {from_epoch_milliseconds(*time), *number}};
}

// Reads whole lines, in pieces of kPiece, from the first line that begins at or after an offset.
class LineReader {
 public:
  LineReader(int fd, off_t offset) : fd_(fd), next_(offset > 0 ? offset - 1 : 0) {
    if (offset > 0) next_line();  // the rest of the line that began before
  }

  // Nothing at the end, of a torn line too; the view lives until the next call.
  std::optional<std::string_view> next_line() {
    while (true) {
      const std::size_t end = buffer_.find('\n', begin_);
      if (end != std::string::npos) {
        const std::string_view line = std::string_view(buffer_).substr(begin_, end - begin_);
        begin_ = end + 1;
        return line;
      }
      if (buffer_.size() - begin_ > kMostLine || !read_more()) return std::nullopt;
    }
  }

 private:
  bool read_more() {
    constexpr std::size_t kPiece = std::size_t{256} << 10;
    buffer_.erase(0, begin_);
    begin_ = 0;
    const std::size_t had = buffer_.size();
    buffer_.resize(had + kPiece);
    const ssize_t got = pread(fd_, buffer_.data() + had, kPiece, next_);
    buffer_.resize(had + static_cast<std::size_t>(std::max(got, ssize_t{0})));
    next_ += std::max(got, ssize_t{0});
    return got > 0;
  }

  int fd_;
  off_t next_;
  std::string buffer_;
  std::size_t begin_ = 0;
};

// An offset at or before the first line of `time` or later: lines are in the order of their times.
off_t seek_metrics(int fd, Time time) {
  constexpr off_t kNear = off_t{64} << 10;  // reading this much costs less than another look
  off_t low = 0;
  off_t high = std::max(lseek(fd, 0, SEEK_END), off_t{0});
  while (high - low > kNear) {
    const off_t middle = low + (high - low) / 2;
    LineReader lines(fd, middle);
    const std::optional<std::string_view> text = lines.next_line();
    const std::optional<Line> line = text ? parse_line(*text) : std::nullopt;
    if (!line) return low;  // damage: what follows is read line by line
    (line->sample.time < time ? low : high) = middle;
  }
  return low;
}

// The last value of each metric in the file, where it is later than what is known.
void read_latest(const std::filesystem::path& path, std::vector<FinalMetric>& latest) {
  const std::string text = tail(path);
  std::string_view rest{text};
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    std::optional<Line> found = parse_line(line);
    if (!found) continue;
    const FinalMetric metric{std::move(found->name), found->sample.value, found->sample.time};
    const auto known = std::ranges::find(latest, metric.name, &FinalMetric::name);
    if (known == latest.end()) {
      latest.push_back(metric);
    } else if (metric.time >= known->time) {
      *known = metric;
    }
  }
}

}  // namespace

Result<void> read_metric(const std::filesystem::path& job_folder, std::string_view name, Time from,
                         Time to, const std::function<bool(const MetricSample&)>& take) {
  for (const std::string& host : agent::instance_hosts(job_folder)) {
    const auto path = agent::instance_folder(job_folder, host) / "metrics.jsonl";
    const Result<UniqueFd> fd = open_file(path, O_RDONLY);
    if (!fd && fd.error().code == Code::kNotFound) continue;
    if (!fd) return fd.error();
    LineReader lines(fd->get(), seek_metrics(fd->get(), from));
    while (const auto text = lines.next_line()) {
      const std::optional<Line> line = parse_line(*text);
      if (!line || line->name != name) continue;
      if (line->sample.time < from || line->sample.time >= to) continue;
      if (!take(line->sample)) return {};
    }
  }
  return {};
}

void complete_metrics(const std::filesystem::path& job_folder, std::vector<FinalMetric>& metrics) {
  std::vector<FinalMetric> latest;
  for (const std::string& host : agent::instance_hosts(job_folder)) {
    read_latest(agent::instance_folder(job_folder, host) / "metrics.jsonl", latest);
  }
  for (const FinalMetric& metric : latest) {
    const auto known = std::ranges::find(metrics, metric.name, &FinalMetric::name);
    if (known == metrics.end()) {
      metrics.push_back(metric);
    } else {
      *known = metric;
    }
  }
}

}  // namespace atelier::jobs
