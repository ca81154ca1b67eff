// What of a folder is in S3 and what is due, without disks, clocks or threads: from looks at the
// folder to the files to copy and the objects to remove.
//
// A file is copied when nothing about it changed between two looks and no process has it open for
// writing. An object is removed when its file was gone in two looks, and not before every file that
// was whole when it went is in S3: a trainer that writes a new checkpoint and then deletes the old
// one has, at every moment, one of them there.
#pragma once

#include <cstdint>
#include <map>
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

struct SeenFile {
  FileVersion version;
  bool writer = false;  // a process has it open for writing
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
  kEnded,    // by itself: what is there is what it wanted to leave
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

 private:
  struct Pending {
    SeenFile seen;
    std::uint64_t since = 0;  // the look that saw this version first
  };
  SyncStep while_it_runs(const Look& look);
  SyncStep at_the_end(const Look& look, ProgramState state);
  [[nodiscard]] bool found_whole(const std::string& name, const FileVersion& version) const;
  void add_removals(const Look& look, std::uint64_t oldest_unsettled, SyncStep& step);

  SyncRules rules_;
  std::uint64_t looks_ = 0;
  Versions copied_;
  Versions queued_;
  std::map<std::string, Pending, std::less<>> pending_;           // as of the last look
  std::map<std::string, std::uint64_t, std::less<>> gone_since_;  // look that missed it first
};

}  // namespace atelier::agent
