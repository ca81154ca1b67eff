// CloudWatch Logs over the logs of jobs: one group, a stream for each instance of a job.
#include <fmt/format.h>

#include <algorithm>

#include "api/logs.h"
#include "base/hash.h"

namespace atelier::api {
namespace {

constexpr std::int64_t kMostStreams = 50;
constexpr std::int64_t kMostEvents = 10000;
// The group has no history here; clients want a date: the day that SageMaker was announced.
constexpr std::int64_t kGroupCreated = 1511913600000;

std::string to_token(const jobs::LogStreamPlace& place) {
  return to_hex(fmt::format("{:020}{}", to_epoch_milliseconds(place.last_event), place.name));
}

std::optional<jobs::LogStreamPlace> from_token(std::string_view token) {
  const Result<std::string> text = from_hex(token);
  if (!text || text->size() < 20 || !std::all_of(text->begin(), text->begin() + 20, [](char c) {
        return c >= '0' && c <= '9';
      })) {
    return std::nullopt;
  }
  // 15 digits are beyond the year 9999; those before them are zeros in what to_token() wrote.
  return jobs::LogStreamPlace{from_epoch_milliseconds(std::stoll(text->substr(5, 15))),
                              text->substr(20)};
}

json::object stream_object(const jobs::LogStream& stream, const Parts& parts) {
  json::object out{{"logStreamName", stream.name},
                   {"creationTime", to_epoch_milliseconds(stream.created)},
                   {"arn", fmt::format("{}:log-stream:{}", log_group_arn(parts), stream.name)},
                   {"storedBytes", stream.stored_bytes}};
  if (stream.first_event) {
    out.emplace("firstEventTimestamp", to_epoch_milliseconds(*stream.first_event));
  }
  if (stream.last_event) {
    out.emplace("lastEventTimestamp", to_epoch_milliseconds(*stream.last_event));
    out.emplace("lastIngestionTime", to_epoch_milliseconds(*stream.last_event));
  }
  return out;
}

}  // namespace

std::string log_group_arn(const Parts& parts) {
  return fmt::format("arn:aws:logs:{}:{}:log-group:{}", parts.region, parts.account, kLogGroup);
}

ApiError log_not_found(std::string_view what) {
  return {400, "ResourceNotFoundException",
          fmt::format("The specified log {} does not exist.", what)};
}

ApiError invalid_parameter(std::string message) {
  return {400, "InvalidParameterException", std::move(message)};
}

std::optional<ApiError> check_group(const Call& call) {
  const auto name = find_string(call.input, "logGroupName");
  const auto identifier = find_string(call.input, "logGroupIdentifier");
  if (name.has_value() == identifier.has_value()) {
    return invalid_parameter("exactly one of logGroupName and logGroupIdentifier must be given");
  }
  const std::string arn = log_group_arn(call.parts);
  const std::string& asked = name ? *name : *identifier;
  const bool ours = asked == kLogGroup || (identifier && (asked == arn || asked == arn + ":*"));
  return ours ? std::nullopt : std::optional(log_not_found("group"));
}

std::optional<Time> milliseconds_at(const json::value& input, std::string_view name) {
  constexpr std::int64_t kLastMillisecond = 253402300799999;  // the end of the year 9999
  const std::optional<std::int64_t> value = find_int(input, name);
  return value ? std::optional(from_epoch_milliseconds(std::min(*value, kLastMillisecond)))
               : std::nullopt;
}

// One group, which begins with the server and never ends.
Outcome describe_log_groups(const Call& call) {
  const auto prefix = find_string(call.input, "logGroupNamePrefix");
  const auto pattern = find_string(call.input, "logGroupNamePattern");
  if (prefix && pattern) {
    return invalid_parameter(
        "Only one of logGroupNamePrefix and logGroupNamePattern can be given.");
  }
  const std::string arn = log_group_arn(call.parts);
  bool wanted = (!prefix || kLogGroup.starts_with(*prefix)) &&
                (!pattern || kLogGroup.find(*pattern) != std::string_view::npos);
  if (const json::array* named = find_array(call.input, "logGroupIdentifiers")) {
    wanted = wanted && std::ranges::any_of(*named, [&](const json::value& name) {
               return name.get_string() == kLogGroup || name.get_string() == arn;
             });
  }
  json::array groups;
  if (wanted) {
    groups.push_back(json::object{{"logGroupName", kLogGroup},
                                  {"creationTime", kGroupCreated},
                                  {"metricFilterCount", 0},
                                  {"arn", arn + ":*"},
                                  {"logGroupArn", arn},
                                  {"logGroupClass", "STANDARD"}});
  }
  return json::object{{"logGroups", std::move(groups)}};
}

Outcome describe_log_streams(const Call& call) {
  if (auto error = check_group(call)) return *error;
  jobs::LogStreamQuery query;
  query.prefix = find_string(call.input, "logStreamNamePrefix").value_or("");
  query.by_time = find_string(call.input, "orderBy") == "LastEventTime";
  if (query.by_time && !query.prefix.empty()) {
    return invalid_parameter("Cannot order by LastEventTime with a logStreamNamePrefix.");
  }
  query.descending = find_bool(call.input, "descending").value_or(false);
  query.limit = static_cast<std::size_t>(find_int(call.input, "limit").value_or(kMostStreams));
  if (const auto token = find_string(call.input, "nextToken")) {
    query.after = from_token(*token);
    if (!query.after) return invalid_parameter("The specified nextToken is invalid.");
  }
  const Result<jobs::LogStreamPage> page = call.parts.jobs.log_streams(query);
  if (!page) return from_error(page.error());
  json::array rows;
  for (const jobs::LogStream& stream : page->streams) {
    rows.push_back(stream_object(stream, call.parts));
  }
  json::object out{{"logStreams", std::move(rows)}};
  // Only when there is more: the SDK loops on a token that it never sends back.
  if (page->next) out.emplace("nextToken", to_token(*page->next));
  return out;
}

Outcome get_log_events(const Call& call) {
  if (auto error = check_group(call)) return *error;
  jobs::LogQuery query;
  query.stream = find_string(call.input, "logStreamName").value_or("");
  query.start = milliseconds_at(call.input, "startTime");
  query.end = milliseconds_at(call.input, "endTime");
  query.token = find_string(call.input, "nextToken").value_or("");
  query.limit = static_cast<std::size_t>(find_int(call.input, "limit").value_or(kMostEvents));
  query.from_head = find_bool(call.input, "startFromHead").value_or(false);
  const Result<jobs::LogQueryPage> page = call.parts.jobs.log_events(query);
  if (!page) {
    if (page.error().code == Code::kNotFound) return log_not_found("stream");
    if (page.error().code == Code::kInvalidArgument) return invalid_parameter(page.error().message);
    return from_error(page.error());
  }
  json::object out(call.storage);
  json::array& events = out.emplace("events", json::array_kind).first->value().get_array();
  events.reserve(page->events.size());
  for (const agent::LogEvent& event : page->events) {
    const std::int64_t time = to_epoch_milliseconds(event.time);
    json::object& row = events.emplace_back(json::object_kind).get_object();
    row.emplace("timestamp", time);
    row.emplace("message", event.message);
    row.emplace("ingestionTime", time);
  }
  out.emplace("nextForwardToken", page->next_forward_token);
  out.emplace("nextBackwardToken", page->next_backward_token);
  return out;
}

}  // namespace atelier::api
