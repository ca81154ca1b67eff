#include "cli/job_logs.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/json.h"
#include "cli/terminal.h"

namespace atelier::cli {
namespace {

constexpr const char* kLogGroup = "/aws/sagemaker/TrainingJobs";
constexpr std::string_view kHost = "algo-";

// 2 of "algo-2"; 0 of anything else.
int host_number(std::string_view host) {
  if (!host.starts_with(kHost)) return 0;
  int number = 0;
  const char* end = host.data() + host.size();
  const auto [stop, failure] = std::from_chars(host.data() + kHost.size(), end, number);
  const bool plain = failure == std::errc{} && stop == end && host[kHost.size()] != '0';
  return plain ? std::max(number, 0) : 0;
}

}  // namespace

int instance_count(const json::value& job) {
  const json::value* resources = find_member(job, "ResourceConfig");
  if (resources == nullptr) return 1;
  std::int64_t count = find_int(*resources, "InstanceCount").value_or(0);
  if (const json::array* groups = find_array(*resources, "InstanceGroups")) {
    for (const json::value& group : *groups) {
      count += find_int(group, "InstanceCount").value_or(0);
    }
  }
  return static_cast<int>(std::clamp<std::int64_t>(count, 1, 100'000));
}

std::string host_of_stream(std::string_view stream) {
  const std::size_t slash = stream.rfind('/');
  if (slash == std::string_view::npos) return {};
  stream.remove_prefix(slash + 1);
  const std::string_view host = stream.substr(0, stream.rfind('-'));
  return host_number(host) > 0 ? std::string{host} : std::string{};
}

std::string line_prefix(std::string_view host, int instances, bool colour) {
  static constexpr std::array kColours = {Style::kCyan, Style::kYellow, Style::kGreen};
  const std::size_t width = kHost.size() + std::to_string(instances).size();
  const auto number = static_cast<std::size_t>(host_number(host));
  return styled(fmt::format("{:<{}}  | ", host, width), kColours[number % kColours.size()], colour);
}

Result<JobLogs> JobLogs::open(ApiClient& api, const json::value& job, std::string instance) {
  const std::string name = find_string(job, "TrainingJobName").value_or("");
  const int instances = instance_count(job);
  const int wanted = host_number(instance);
  if (!instance.empty() && (wanted < 1 || wanted > instances)) {
    return Error{
        Code::kNotFound,
        fmt::format("training job '{}' has no instance '{}': it has {}", name, instance,
                    instances == 1 ? "algo-1 alone" : fmt::format("algo-1 to algo-{}", instances))};
  }
  return JobLogs{api, name, instances, std::move(instance)};
}

Result<void> JobLogs::find_streams() {
  const std::size_t wanted = instance_.empty() ? static_cast<std::size_t>(instances_) : 1;
  if (streams_.size() >= wanted) return {};
  json::object request{{"logGroupName", kLogGroup},
                       {"logStreamNamePrefix", job_ + "/"},
                       {"orderBy", "LogStreamName"}};
  while (true) {
    const json::value found = TRY(api_.call("Logs_20140328.DescribeLogStreams", request));
    if (const json::array* streams = find_array(found, "logStreams")) {
      for (const json::value& stream : *streams) {
        std::string name = find_string(stream, "logStreamName").value_or("");
        const std::string host = host_of_stream(name);
        if (host.empty() || (!instance_.empty() && host != instance_)) continue;
        streams_.try_emplace(host, Stream{.name = std::move(name)});
      }
    }
    const std::string token = find_string(found, "nextToken").value_or("");
    if (token.empty()) return {};
    request["nextToken"] = token;
  }
}

Result<void> JobLogs::fill(const std::string& host, Stream& stream) {
  if (!stream.lines.empty() || stream.at_end) return {};
  json::object request{
      {"logGroupName", kLogGroup}, {"logStreamName", stream.name}, {"startFromHead", true}};
  if (!stream.token.empty()) request["nextToken"] = stream.token;
  const json::value page = TRY(api_.call("Logs_20140328.GetLogEvents", request));
  stream.token = find_string(page, "nextForwardToken").value_or(stream.token);
  if (const json::array* events = find_array(page, "events")) {
    for (const json::value& event : *events) {
      stream.lines.push_back({host, stream.name, find_number(event, "timestamp").value_or(0),
                              find_string(event, "message").value_or("")});
    }
  }
  stream.at_end = stream.lines.empty();
  return {};
}

Result<void> JobLogs::advance(const std::function<void(const LogLine&)>& each) {
  TRY(find_streams());
  for (auto& [host, stream] : streams_) stream.at_end = false;
  while (true) {
    Stream* oldest = nullptr;
    for (auto& [host, stream] : streams_) {
      TRY(fill(host, stream));
      if (stream.lines.empty()) continue;
      if (oldest == nullptr || stream.lines.front().time < oldest->lines.front().time) {
        oldest = &stream;
      }
    }
    if (oldest == nullptr) return {};
    each(oldest->lines.front());
    oldest->lines.pop_front();
  }
}

}  // namespace atelier::cli
