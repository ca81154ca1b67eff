#include "jobs/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

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

void complete_metrics(const std::filesystem::path& job_folder, std::vector<FinalMetric>& metrics) {
  const std::string text = tail(job_folder / "metrics.jsonl");
  std::string_view rest{text};
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    const Result<json::value> value = parse_json(line);
    if (!value) continue;
    const auto time = find_int(*value, "t");
    auto name = find_string(*value, "n");
    const auto number = find_number(*value, "v");
    if (!time || !name || !number) continue;
    const FinalMetric metric{*std::move(name), *number, from_epoch_milliseconds(*time)};
    const auto known = std::ranges::find(metrics, metric.name, &FinalMetric::name);
    if (known == metrics.end()) {
      metrics.push_back(metric);
    } else {
      *known = metric;
    }
  }
}

}  // namespace atelier::jobs
