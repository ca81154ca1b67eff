// FilterLogEvents: the lines of several streams that match, in the order of their times.
#include <fmt/format.h>

#include <algorithm>

#include "api/filter_pattern.h"
#include "api/logs.h"
#include "base/hash.h"

namespace atelier::api {
namespace {

constexpr std::size_t kMostStreams = 100;
constexpr std::size_t kMostEvents = 10000;
constexpr std::size_t kEventsARead = 500;
// A call looks at this many lines at most; a pattern that matches little comes in several pages.
constexpr std::size_t kMostLooks = 200'000;

Error wrong(std::string message) { return Error{Code::kInvalidArgument, std::move(message)}; }

// One stream that is read from its place on, a page ahead.
struct Reader {
  std::string stream = {};
  std::uint64_t next = 0;  // the offset to go on from when the page is used up
  bool at_end = false;
  std::vector<agent::LogEvent> page = {};
  std::size_t used = 0;

  [[nodiscard]] const agent::LogEvent* front() const {
    return used < page.size() ? &page[used] : nullptr;
  }
  // The offset of the first line that was not used.
  [[nodiscard]] std::uint64_t place() const { return front() != nullptr ? front()->offset : next; }

  Result<void> fill(const Call& call, std::optional<Time> start, std::optional<Time> end) {
    if (front() != nullptr || at_end) return {};
    jobs::LogQuery query{.stream = stream,
                         .start = start,
                         .end = end,
                         .token = fmt::format("f/{}", next),
                         .limit = kEventsARead,
                         .from_head = true};
    Result<jobs::LogQueryPage> read = call.parts.jobs.log_events(query);
    if (!read && read.error().code == Code::kNotFound) {  // deleted meanwhile
      at_end = true;
      return {};
    }
    if (!read) return read.error();
    page = std::move(read->events);
    used = 0;
    at_end = page.empty();
    next = std::strtoull(read->next_forward_token.c_str() + 2, nullptr, 10);
    return {};
  }
};

// A token holds where each stream goes on: {"job/algo-1-7": 1234}.
std::string to_token(const std::vector<Reader>& readers) {
  json::object places;
  for (const Reader& reader : readers) places.emplace(reader.stream, reader.place());
  return to_base64(json::serialize(places));
}

Result<void> take_up(std::vector<Reader>& readers, const std::string& token) {
  const Error bad = wrong("The specified nextToken is invalid.");
  const Result<std::string> text = from_base64(token);
  const Result<json::value> places = text ? parse_json(*text, 2) : Result<json::value>(bad);
  if (!places || !places->is_object()) return bad;
  for (Reader& reader : readers) {
    // A stream that is new since then is read from its beginning.
    if (const auto place = find_int(*places, reader.stream)) {
      if (*place < 0) return bad;
      reader.next = static_cast<std::uint64_t>(*place);
    }
  }
  return {};
}

// Those that have a line since `start`, by their names; one more than may be is enough to know.
Result<std::vector<Reader>> streams_since(const Call& call, const std::string& prefix,
                                          std::optional<Time> start) {
  std::vector<Reader> readers;
  jobs::LogStreamQuery query{.prefix = prefix, .limit = kMostStreams + 1};
  query.by_time = query.descending = start && prefix.empty();
  while (true) {
    const jobs::LogStreamPage page = TRY(call.parts.jobs.log_streams(query));
    for (const jobs::LogStream& stream : page.streams) {
      if (start && stream.last_event && *stream.last_event < *start) continue;
      readers.push_back({.stream = stream.name});
    }
    // In the order of times no later page has any.
    const bool past = query.by_time && page.next && page.next->last_event < *start;
    if (!page.next || past || readers.size() > kMostStreams) break;
    query.after = page.next;
  }
  std::ranges::sort(readers, {}, &Reader::stream);
  return readers;
}

Result<std::vector<Reader>> readers_of(const Call& call, std::optional<Time> start) {
  const json::array* names = find_array(call.input, "logStreamNames");
  const auto prefix = find_string(call.input, "logStreamNamePrefix");
  if (names != nullptr && prefix) {
    return wrong("Only one of logStreamNames and logStreamNamePrefix can be given.");
  }
  std::vector<Reader> readers;
  if (names != nullptr) {
    for (const json::value& name : *names) {
      readers.push_back({.stream = std::string(name.get_string())});
    }
  } else {
    readers = TRY(streams_since(call, prefix.value_or(""), start));
  }
  if (readers.size() > kMostStreams) {
    return wrong(
        fmt::format("more than {0} log streams match, and at most {0} are read at once: give a "
                    "logStreamNamePrefix, such as a job's name and '/', or a later startTime",
                    kMostStreams));
  }
  return readers;
}

json::object event_object(const Reader& reader, const agent::LogEvent& event) {
  const std::int64_t time = to_epoch_milliseconds(event.time);
  // The same for a line whenever it is read; clients that follow a log tell lines apart by it.
  const std::string id =
      fmt::format("{:020}{}", event.offset, sha256_hex(reader.stream).substr(0, 36));
  return {{"logStreamName", reader.stream},
          {"timestamp", time},
          {"message", event.message},
          {"ingestionTime", time},
          {"eventId", id}};
}

// The stream whose next line is the oldest; null when all are at their ends.
Result<Reader*> oldest(const Call& call, std::vector<Reader>& readers, std::optional<Time> start,
                       std::optional<Time> end) {
  Reader* found = nullptr;
  for (Reader& reader : readers) {
    TRY(reader.fill(call, start, end));
    if (reader.front() == nullptr) continue;
    if (found == nullptr || reader.front()->time < found->front()->time) found = &reader;
  }
  return found;
}

Result<json::object> filtered(const Call& call) {
  const FilterPattern pattern =
      TRY(FilterPattern::parse(find_string(call.input, "filterPattern").value_or("")));
  const auto start = milliseconds_at(call.input, "startTime");
  const auto end = milliseconds_at(call.input, "endTime");
  std::vector<Reader> readers = TRY(readers_of(call, start));
  if (const auto token = find_string(call.input, "nextToken")) TRY(take_up(readers, *token));
  const auto limit = static_cast<std::size_t>(
      find_int(call.input, "limit").value_or(static_cast<std::int64_t>(kMostEvents)));
  json::array events;
  std::size_t looks = 0;
  Reader* next = TRY(oldest(call, readers, start, end));
  while (next != nullptr && events.size() < limit && looks++ < kMostLooks) {
    const agent::LogEvent& event = *next->front();
    if (pattern.matches(event.message)) events.push_back(event_object(*next, event));
    ++next->used;
    next = TRY(oldest(call, readers, start, end));
  }
  json::object out{{"events", std::move(events)}, {"searchedLogStreams", json::array{}}};
  if (next != nullptr) out.emplace("nextToken", to_token(readers));
  return out;
}

}  // namespace

Outcome filter_log_events(const Call& call) {
  if (auto error = check_group(call)) return *error;
  Result<json::object> found = filtered(call);
  if (found) return *std::move(found);
  if (found.error().code == Code::kInvalidArgument) return invalid_parameter(found.error().message);
  return from_error(found.error());
}

}  // namespace atelier::api
