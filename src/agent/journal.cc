#include "agent/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <thread>

#include "base/json.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kMaxJournalBytes = std::size_t{64} << 20;
constexpr std::chrono::milliseconds kRoomLook{250};  // how often a full disk is tried again

std::filesystem::path journal_path(const std::filesystem::path& job_folder) {
  return job_folder / "journal.jsonl";
}

Result<std::string> read_journal_text(const std::filesystem::path& job_folder) {
  Result<std::string> text = read_file(journal_path(job_folder), kMaxJournalBytes);
  if (!text && text.error().code == Code::kNotFound) return std::string{};
  return text;
}

std::optional<JournalEvent> parse_event(std::string_view line) {
  const Result<json::value> value = parse_json(line);
  if (!value) return std::nullopt;
  const auto sequence = find_int(*value, "sequence");
  const auto time = find_int(*value, "time");
  const auto kind = find_string(*value, "kind");
  if (!sequence || *sequence < 1 || !time || !kind) return std::nullopt;
  JournalEvent event;
  event.sequence = static_cast<std::uint64_t>(*sequence);
  event.time = from_epoch_milliseconds(*time);
  event.kind = *kind;
  event.message = find_string(*value, "message").value_or("");
  const std::int64_t attempt = find_int(*value, "attempt").value_or(1);
  if (attempt < 1 || attempt > std::numeric_limits<int>::max()) return std::nullopt;
  event.attempt = static_cast<int>(attempt);
  if (const json::value* detail = find_member(*value, "detail")) {
    event.detail_json = json::serialize(*detail);
  }
  return event;
}

}  // namespace

std::string to_json_line(const JournalEvent& event) {
  json::object object{{"sequence", event.sequence},
                      {"time", to_epoch_milliseconds(event.time)},
                      {"kind", event.kind},
                      {"message", valid_utf8(event.message)},
                      {"attempt", event.attempt}};
  if (!event.detail_json.empty()) {
    const Result<json::value> detail = parse_json(event.detail_json);
    if (detail) object["detail"] = *detail;
  }
  return json::serialize(object) + "\n";
}

ParsedJournal parse_journal(std::string_view text) {
  ParsedJournal parsed;
  while (true) {
    const std::size_t end = text.find('\n', parsed.bytes);
    if (end == std::string_view::npos) return parsed;
    auto event = parse_event(text.substr(parsed.bytes, end - parsed.bytes));
    if (!event) return parsed;
    if (!parsed.events.empty() && event->sequence <= parsed.events.back().sequence) return parsed;
    parsed.events.push_back(*std::move(event));
    parsed.bytes = end + 1;
  }
}

Result<std::vector<JournalEvent>> read_journal(const std::filesystem::path& job_folder,
                                               std::uint64_t after) {
  const std::string text = TRY(read_journal_text(job_folder));
  std::vector<JournalEvent> events = parse_journal(text).events;
  std::erase_if(events, [&](const JournalEvent& event) {
    return event.sequence <= after && !is_last_event(event.kind);
  });
  return events;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
    };
    const unsigned first = byte(i);
    std::size_t length = first < 0x80                     ? 1
                         : first >= 0xC2 && first <= 0xDF ? 2
                         : first >= 0xE0 && first <= 0xEF ? 3
                         : first >= 0xF0 && first <= 0xF4 ? 4
                                                          : 0;
    for (std::size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0U) != 0x80U) length = 0;
    }
    // Overlong forms, surrogates and what lies beyond U+10FFFF.
    const unsigned second = byte(i + 1);
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
      length = 0;
    }
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++i;
    } else {
      out.append(text.substr(i, length));
      i += length;
    }
  }
  return out;
}

bool is_last_event(std::string_view kind) {
  return kind == "completed" || kind == "failed" || kind == "stopped" || kind == "max-runtime" ||
         kind == "interrupted";
}

Result<Journal> Journal::open(const std::filesystem::path& job_folder, const Clock& clock) {
  const std::string text = TRY(read_journal_text(job_folder));
  ParsedJournal parsed = parse_journal(text);
  UniqueFd fd = TRY(open_file(journal_path(job_folder), O_WRONLY | O_CREAT | O_APPEND, 0600));
  if (parsed.bytes < text.size() && ftruncate(fd.get(), static_cast<off_t>(parsed.bytes)) != 0) {
    return error_from_errno("cut the torn end of '" + journal_path(job_folder).string() + "'",
                            errno);
  }
  return Journal{std::move(fd), job_folder, clock, std::move(parsed.events), parsed.bytes};
}

Result<void> Journal::append(std::string_view kind, std::string message, std::string detail_json) {
  const JournalEvent event = next(kind, std::move(message), std::move(detail_json));
  Result<void> written = write(event);
  // An agent that cannot say what happened would end, and its job be called lost.
  while (!written && written.error().code == Code::kResourceExhausted) {
    std::this_thread::sleep_for(kRoomLook);
    written = write(event);
  }
  TRY(written);
  if (fdatasync(fd_.get()) != 0) return error_from_errno("fdatasync of the job's journal", errno);
  if (folder_synced_) return {};
  // The names on the way to it too: a journal that a power cut made vanish would let the program
  // run twice.
  TRY(sync_folder(folder_));
  TRY(sync_folder(folder_ / ".."));
  folder_synced_ = true;
  return {};
}

Result<void> Journal::append_soon(std::string_view kind, std::string message) {
  return write(next(kind, std::move(message), {}));
}

JournalEvent Journal::next(std::string_view kind, std::string message,
                           std::string detail_json) const {
  const std::uint64_t last = events_.empty() ? 0 : events_.back().sequence;
  return {std::max(last, floor_) + 1, clock_->now(),          std::string{kind},
          std::move(message),         std::move(detail_json), attempt_};
}

void Journal::enter(int attempt, std::uint64_t floor) {
  attempt_ = attempt;
  floor_ = floor;
}

const JournalEvent* Journal::end() const {
  if (events_.empty()) return nullptr;
  const JournalEvent& last = events_.back();
  return last.attempt >= attempt_ && is_last_event(last.kind) ? &last : nullptr;
}

Result<void> Journal::write(JournalEvent event) {
  const std::string line = to_json_line(event);
  Result<void> written = write_all(fd_.get(), line);
  if (!written) {
    // A full disk may have taken half of the line: the next one must not be glued to it.
    if (ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) {
      return error_from_errno("cut the torn end of the job's journal", errno);
    }
    return written.error().within("append to the job's journal");
  }
  bytes_ += line.size();
  events_.push_back(std::move(event));
  return {};
}

const JournalEvent* Journal::find(std::string_view kind) const {
  for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
    if (event->attempt == attempt_ && event->kind == kind) return &*event;
  }
  return nullptr;
}

}  // namespace atelier::agent
