#include "agent/sync_ledger.h"

#include <limits>

#include "agent/checkpoint_names.h"

namespace atelier::agent {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

}  // namespace

void SyncLedger::copied(const std::string& name, const FileVersion& version) {
  copied_.insert_or_assign(name, version);
  queued_.erase(name);
}

void SyncLedger::removed(const std::string& name) {
  copied_.erase(name);
  queued_.erase(name);
  gone_since_.erase(name);
}

void SyncLedger::queued(const std::string& name, const FileVersion& version) {
  queued_.insert_or_assign(name, version);
}

bool SyncLedger::is_copied(std::string_view name, const FileVersion& version) const {
  const auto found = copied_.find(name);
  return found != copied_.end() && found->second == version;
}

SyncStep SyncLedger::next(const Look& look, ProgramState state) {
  SyncStep step = state == ProgramState::kRuns ? while_it_runs(look) : at_the_end(look, state);
  add_impossible(step);
  // A pointer file ("latest") is written after what it points to, and so it arrives after it.
  std::ranges::stable_sort(step.copy, {},
                           [](const DueFile& file) { return file.version.modified; });
  return step;
}

// A folder cannot hold both "a" and "a/b": of what S3 has, that which cannot be beside a file that
// is copied goes, whatever else is known.
void SyncLedger::add_impossible(SyncStep& step) const {
  std::vector<std::string> gone;
  for (const DueFile& file : step.copy) {
    for (std::size_t at = file.name.find('/'); at != std::string::npos;
         at = file.name.find('/', at + 1)) {
      const auto above = copied_.find(std::string_view{file.name}.substr(0, at));
      if (above != copied_.end()) gone.push_back(above->first);
    }
    const std::string below = file.name + "/";
    for (auto next = copied_.lower_bound(below);
         next != copied_.end() && next->first.starts_with(below); ++next) {
      gone.push_back(next->first);
    }
  }
  for (std::string& name : gone) {
    if (std::ranges::find(step.remove, name) == step.remove.end()) {
      step.remove.push_back(std::move(name));
    }
  }
}

// Who writes the file, or wrote it. An open file is closed by its writer or by the writer's death,
// and only the first of these makes it whole.
SyncLedger::Finding SyncLedger::find(const std::string& name, const SeenFile& seen) {
  const auto known = suspicions_.find(name);
  // Another file has taken its place: who renames one knows that it is whole.
  const bool other = known != suspicions_.end() && known->second.inode != seen.version.inode;
  // Closed as we looked for its writer: the next look says more.
  if (seen.writer && seen.writers.empty() && !seen.unknown_writer) return Finding::kWriting;
  if (seen.writer) {
    Suspicion& suspicion = suspicions_[name];
    if (other || suspicion.half) suspicion = {};
    suspicion.inode = seen.version.inode;
    suspicion.writers.insert(seen.writers.begin(), seen.writers.end());
    suspicion.unknown_writer = suspicion.unknown_writer || seen.unknown_writer;
    return Finding::kWriting;
  }
  if (known == suspicions_.end()) return Finding::kQuiet;
  Suspicion& suspicion = known->second;
  if (suspicion.half == seen.version) return Finding::kHalf;
  if (other || suspicion.half) {
    suspicions_.erase(known);
    return Finding::kQuiet;
  }
  bool half = suspicion.unknown_writer;
  for (const auto& [id, fate] : suspicion.writers) {
    const Fate now = fate();
    if (now == Fate::kLeaving) return Finding::kWriting;
    half = half || now == Fate::kUnknown;
  }
  if (!half) {
    suspicions_.erase(known);
    return Finding::kClosed;
  }
  suspicion.half = seen.version;
  return Finding::kHalf;
}

SyncLedger::Pending SyncLedger::pending_of(const std::string& name, const SeenFile& seen,
                                           Finding& finding) {
  finding = rules_.copy_open_files ? Finding::kQuiet : find(name, seen);
  const auto before = pending_.find(name);
  Pending pending{seen.version};
  if (before != pending_.end() && before->second.version == seen.version) pending = before->second;
  pending.whole =
      finding == Finding::kClosed || rules_.copy_open_files ||
      (finding == Finding::kQuiet && (pending.whole || seen.version.changed > doubted_));
  return pending;
}

void SyncLedger::observe(const Look& look) {
  for (const auto& [name, seen] : look) {
    gone_since_.erase(name);
    if (is_copied(name, seen.version)) continue;
    Finding finding{};
    pending_.insert_or_assign(name, pending_of(name, seen, finding));
  }
}

SyncStep SyncLedger::while_it_runs(const Look& look) {
  ++looks_;
  SyncStep step;
  std::map<std::string, Pending, std::less<>> pending;
  std::uint64_t oldest_unsettled = kNever;
  for (const auto& [name, seen] : look) {
    if (is_copied(name, seen.version)) continue;
    if (!is_object_name(name, rules_.prefix_bytes)) {
      step.no_key.push_back(name);
      continue;
    }
    if (rules_.leave_temporary && is_temporary_name(name)) continue;
    Finding finding{};
    Pending file = pending_of(name, seen, finding);
    const bool unchanged = file.since != 0;
    if (!unchanged) file.since = looks_;
    if (unchanged && file.whole) {
      step.copy.push_back({name, seen.version});
    } else if (finding != Finding::kWriting) {
      oldest_unsettled = std::min(oldest_unsettled, file.since);
    }
    pending.emplace_hint(pending.end(), name, file);
  }
  pending_ = std::move(pending);
  std::erase_if(suspicions_, [&](const auto& entry) { return !look.contains(entry.first); });
  add_removals(look, oldest_unsettled, step);
  return step;
}

// A file that is gone may have been moved while the look was on its way, and what took its place
// may be seen by the next look only; so the second look that misses it decides, together with all
// that it saw.
void SyncLedger::add_removals(const Look& look, std::uint64_t oldest_unsettled, SyncStep& step) {
  if (!rules_.mirror_deletions) return;
  std::map<std::string, std::uint64_t, std::less<>> gone;
  for (const auto& [name, version] : copied_) {
    if (look.contains(name)) continue;
    const auto before = gone_since_.find(name);
    const std::uint64_t since = before == gone_since_.end() ? looks_ : before->second;
    gone.emplace_hint(gone.end(), name, since);
    const std::uint64_t decided = since + 1;
    if (looks_ >= decided && oldest_unsettled > decided) step.remove.push_back(name);
  }
  gone_since_ = std::move(gone);
}

// Whether the file was seen whole while the program lived, and is the same since.
bool SyncLedger::found_whole(const std::string& name, const FileVersion& version) const {
  const auto queued = queued_.find(name);
  if (queued != queued_.end() && queued->second == version) return true;
  const auto seen = pending_.find(name);
  return seen != pending_.end() && seen->second.version == version && seen->second.whole;
}

// Whether a file that the program has left is copied.
bool SyncLedger::is_trusted(const std::string& name, const SeenFile& seen, ProgramState state) {
  if (state == ProgramState::kEnded || rules_.copy_open_files) return true;
  if (found_whole(name, seen.version)) return true;
  // Nothing of the program lives any more: who does is not told apart from one that was killed.
  const auto known = suspicions_.find(name);
  const bool odd = known != suspicions_.end() &&
                   std::ranges::any_of(known->second.writers, [](const auto& writer) {
                     return writer.second() == Fate::kLives;
                   });
  const Finding finding = odd ? Finding::kHalf : find(name, seen);
  return finding == Finding::kClosed ||
         (finding == Finding::kQuiet && state == ProgramState::kFailed);
}

SyncStep SyncLedger::at_the_end(const Look& look, ProgramState state) {
  SyncStep step;
  for (const auto& [name, seen] : look) {
    if (is_copied(name, seen.version)) continue;
    if (!is_object_name(name, rules_.prefix_bytes)) {
      step.no_key.push_back(name);
    } else if (is_trusted(name, seen, state)) {
      step.copy.push_back({name, seen.version});
    } else {
      step.left_out.push_back(name);
    }
  }
  // What is left out may be what replaced the files that are gone.
  if (!rules_.mirror_deletions || !step.left_out.empty()) return step;
  for (const auto& [name, version] : copied_) {
    if (!look.contains(name)) step.remove.push_back(name);
  }
  return step;
}

}  // namespace atelier::agent
