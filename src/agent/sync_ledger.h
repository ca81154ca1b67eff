// What of a folder is in S3 and what is due, without disks, clocks or threads: from looks at the
// folder to the files to copy and the objects to remove.
//
// A file is copied when nothing about it changed between two looks, no process has it open for
// writing, and none that was seen writing it was killed. An object is removed when its file was
// gone in two looks, and not before every file that was whole when it went is in S3: a trainer that
// writes a new checkpoint and then deletes the old one has, at every moment, one of them there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace atelier::agent {

// A state of a file. The kernel sets `changed` with every write, and no program can set it.
struct FileVersion {
  std::uint64_t size = 0;
  std::uint64_t inode = 0;
  std::int64_t modified = 0;  // nanoseconds since 1970, as is
  std::int64_t changed = 0;
  bool operator==(const FileVersion&) const = default;
};

// What became of a process.
enum class Fate {
  kLives,
  kLeaving,  // on its way out; how, is not known yet
  kExited,   // by itself, with whatever exit code
  kUnknown,  // killed, or gone and nobody can tell how
};
// Processes, each by a name that no other one ever has.
using Writers = std::map<std::string, std::function<Fate()>, std::less<>>;

struct SeenFile {
  FileVersion version;
  bool writer = false;          // a process has it open for writing
  Writers writers{};            // those that do, and
  bool unknown_writer = false;  // one that could not be found
};

// Regular files by their path relative to the folder.
using Look = std::map<std::string, SeenFile, std::less<>>;
using Versions = std::map<std::string, FileVersion, std::less<>>;

struct SyncRules {
  std::size_t prefix_bytes = 0;  // of the keys before a file's name
  bool mirror_deletions = true;
  bool leave_temporary = true;   // names that is_temporary_name() knows
  bool copy_open_files = false;  // for files that only grow
};

enum class ProgramState {
  kRuns,
  kEnded,    // by itself, and well: what is there is what it wanted to leave
  kFailed,   // by itself: but what a killed part of it was writing is not trusted
  kCrashed,  // killed: what it may have been writing is not trusted
};

struct DueFile {
  std::string name;
  FileVersion version;
};

struct SyncStep {
  std::vector<DueFile> copy;          // the oldest first
  std::vector<std::string> remove;    // once all of `copy` is in S3
  std::vector<std::string> left_out;  // after the end: files that are not copied, and
  std::vector<std::string> no_key;    // those that never can be
};

class SyncLedger {
 public:
  explicit SyncLedger(SyncRules rules) : rules_(rules) {}

  // What S3 has: restored, or copied by this agent or the one before it.
  void copied(const std::string& name, const FileVersion& version);
  void removed(const std::string& name);
  // A copy of a file that was found whole has begun; with the copy unfinished it is still whole.
  void queued(const std::string& name, const FileVersion& version);

  [[nodiscard]] bool is_copied(std::string_view name, const FileVersion& version) const;
  [[nodiscard]] const Versions& copied() const { return copied_; }
  [[nodiscard]] const Versions& queued() const { return queued_; }

  // Takes the look in and says what is due. With kRuns each call is one look.
  SyncStep next(const Look& look, ProgramState state);
  // Takes in who writes what, and what is whole, for the end; it settles no file and misses none.
  void observe(const Look& look);
  // A process of the program died shortly before that time (as FileVersion::changed): a file that
  // nobody is seen to write, and that was not found whole before, may be what it left half written,
  // unless it was changed later.
  void doubt_before(std::int64_t time) { doubted_ = std::max(doubted_, time); }

 private:
  struct Pending {
    FileVersion version;
    std::uint64_t since = 0;  // the look that saw this version first; 0: none yet that counts
    bool whole = false;       // nobody was writing it
  };
  struct Suspicion {
    std::uint64_t inode = 0;
    Writers writers{};
    bool unknown_writer = false;
    std::optional<FileVersion> half{};  // what a killed writer has left
  };
  enum class Finding { kWriting, kHalf, kQuiet, kClosed };
  Finding find(const std::string& name, const SeenFile& seen);
  Pending pending_of(const std::string& name, const SeenFile& seen, Finding& finding);
  SyncStep while_it_runs(const Look& look);
  SyncStep at_the_end(const Look& look, ProgramState state);
  [[nodiscard]] bool found_whole(const std::string& name, const FileVersion& version) const;
  [[nodiscard]] bool is_trusted(const std::string& name, const SeenFile& seen, ProgramState state);
  void add_impossible(SyncStep& step) const;
  void add_removals(const Look& look, std::uint64_t oldest_unsettled, SyncStep& step);

  SyncRules rules_;
  std::uint64_t looks_ = 0;
  Versions copied_;
  Versions queued_;
  std::int64_t doubted_ = 0;
  std::map<std::string, Pending, std::less<>> pending_;           // as of the last look
  std::map<std::string, Suspicion, std::less<>> suspicions_;      // of files that were written
  std::map<std::string, std::uint64_t, std::less<>> gone_since_;  // look that missed it first
};

}  // namespace atelier::agent
