// The agent's side of journal.jsonl: events are appended and on disk before anything acts on them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spec.h"
#include "base/file.h"
#include "base/result.h"
#include "base/time.h"

namespace atelier::agent {

class Journal {
 public:
  // Opens to append; a torn last line is cut off. `events()` then has what was there.
  static Result<Journal> open(const std::filesystem::path& job_folder, const Clock& clock);
  // Durable when it returns, with all that was written before and the folder's own name. Waits for
  // room on a full disk.
  Result<void> append(std::string_view kind, std::string message, std::string detail_json = {});
  // Written now, and on disk with the next append(): for events from which nothing follows that
  // could not be done again.
  Result<void> append_soon(std::string_view kind, std::string message);
  [[nodiscard]] const std::vector<JournalEvent>& events() const { return events_; }
  // Events are of this attempt from here on, and numbered from above `floor`.
  void enter(int attempt, std::uint64_t floor);
  // The event that ended the attempt, or a later one; null while it has not ended.
  [[nodiscard]] const JournalEvent* end() const;
  // The last event of that kind in this attempt, or null.
  [[nodiscard]] const JournalEvent* find(std::string_view kind) const;

 private:
  Journal(UniqueFd fd, std::filesystem::path folder, const Clock& clock,
          std::vector<JournalEvent> events, std::size_t bytes)
      : fd_(std::move(fd)),
        folder_(std::move(folder)),
        clock_(&clock),
        events_(std::move(events)),
        bytes_(bytes) {}
  Result<void> write(JournalEvent event);
  [[nodiscard]] JournalEvent next(std::string_view kind, std::string message,
                                  std::string detail_json) const;

  UniqueFd fd_;
  std::filesystem::path folder_;
  bool folder_synced_ = false;
  const Clock* clock_;
  std::vector<JournalEvent> events_;
  int attempt_ = 1;
  std::uint64_t floor_ = 0;
  std::size_t bytes_;  // of the file, up to the end of the last whole event
};

// Whole events of `text`, and how many of its bytes they take. Parsing stops at the first line that
// is torn, damaged or out of sequence: what is after it was never acted on.
struct ParsedJournal {
  std::vector<JournalEvent> events;
  std::size_t bytes = 0;
};
ParsedJournal parse_journal(std::string_view text);

// `text` with what is not UTF-8 replaced by U+FFFD: programs print and write any bytes, and JSON
// holds text only.
std::string valid_utf8(std::string_view text);

// completed, failed, stopped, max-runtime and interrupted end an attempt.
bool is_last_event(std::string_view kind);

}  // namespace atelier::agent
