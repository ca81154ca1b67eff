#include "jobs/logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "agent/spec.h"

namespace atelier::jobs {
namespace {

constexpr std::size_t kMaxEvents = 10000;
constexpr std::size_t kMaxBytes = 1'000'000;
constexpr std::uint64_t kEndOfLog = std::numeric_limits<std::uint64_t>::max();

struct Token {
  bool forward = true;
  std::uint64_t offset = 0;
};

Result<Token> parse_token(const std::string& text) {
  Token token;
  const char* last = text.data() + text.size();
  if (text.size() > 2 && (text.starts_with("f/") || text.starts_with("b/"))) {
    token.forward = text[0] == 'f';
    const auto [end, failure] = std::from_chars(text.data() + 2, last, token.offset);
    if (failure == std::errc{} && end == last) return token;
  }
  return Error{Code::kInvalidArgument,
               fmt::format("nextToken '{}' is not one that GetLogEvents gave", text)};
}

}  // namespace

std::filesystem::path log_path(const std::filesystem::path& job_folder, const std::string& host) {
  return agent::instance_folder(job_folder, host) / "logs" / (host + ".log");
}

std::string log_stream_of(const TrainingJob& job, const std::string& host) {
  const std::string first = fmt::format("/{}-", agent::kLeader);
  std::string name = job.log_stream;
  const std::size_t at = name.rfind(first);
  if (at != std::string::npos) name.replace(at, first.size(), fmt::format("/{}-", host));
  return name;
}

Result<std::optional<LogStream>> read_log_stream(const TrainingJob& job,
                                                 const std::filesystem::path& job_folder,
                                                 const std::string& host) {
  const std::filesystem::path path = log_path(job_folder, host);
  const agent::LogPage first = TRY(agent::read_log(path, 0, 1, kMaxBytes));
  if (first.events.empty()) return std::optional<LogStream>{};
  const agent::LogPage last = TRY(agent::read_log_backward(path, kEndOfLog, 1, kMaxBytes));
  LogStream stream;
  stream.name = log_stream_of(job, host);
  stream.created = first.events.front().time;
  stream.first_event = first.events.front().time;
  stream.last_event = last.events.empty() ? stream.first_event : last.events.back().time;
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  if (!failure) stream.stored_bytes = size;
  return std::optional<LogStream>{std::move(stream)};
}

Result<LogQueryPage> read_log_page(const std::filesystem::path& log, const LogQuery& query) {
  const std::size_t limit = std::clamp<std::size_t>(query.limit, 1, kMaxEvents);
  // Times never go back in a log, so a span of time is a span of offsets.
  std::uint64_t begin = 0;
  std::uint64_t end = kEndOfLog;
  if (query.start) begin = TRY(agent::seek_log(log, *query.start));
  if (query.end) end = TRY(agent::seek_log(log, *query.end));
  Token token{query.from_head, query.from_head ? begin : end};
  if (!query.token.empty()) token = TRY(parse_token(query.token));

  agent::LogPage page;
  if (token.forward) {
    const std::uint64_t from = std::max(token.offset, begin);
    page = TRY(agent::read_log(log, from, limit, kMaxBytes));
    while (!page.events.empty() && page.events.back().offset >= end) {
      page.next_offset = page.events.back().offset;  // to go on there, should the query's end move
      page.events.pop_back();
    }
  } else {
    page = TRY(agent::read_log_backward(log, std::min(token.offset, end), limit, kMaxBytes));
    const auto kept = std::ranges::find_if(
        page.events, [&](const agent::LogEvent& event) { return event.offset >= begin; });
    if (kept != page.events.begin()) {
      page.previous_offset = kept == page.events.end() ? page.next_offset : kept->offset;
      page.events.erase(page.events.begin(), kept);
    }
  }
  return LogQueryPage{std::move(page.events), fmt::format("f/{}", page.next_offset),
                      fmt::format("b/{}", page.previous_offset)};
}

}  // namespace atelier::jobs
