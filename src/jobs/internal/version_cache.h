// The versions of jobs that were asked for lately, so that asking again costs no query while
// nothing in the store has changed.
//
// An entry is of a generation, which every change of the store ends: a version that was read in the
// present generation is the present one. To be read in this order: generation(), the database,
// keep(); and changed() comes between the commit and the answer. Then a reader that the answer has
// reached sees the new generation, and one that read the database before the commit has kept under
// the old one. Safe from every thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "jobs/store.h"

namespace atelier::jobs::internal {

class VersionCache {
 public:
  using Generation = std::uint64_t;
  [[nodiscard]] Generation generation() const { return generation_; }
  void changed() { ++generation_; }

  std::optional<RecordVersion> find(const std::string& name) {
    const std::lock_guard lock{mutex_};
    const auto found = entries_.find(name);
    if (found == entries_.end() || found->second.generation != generation()) return std::nullopt;
    return found->second.version;
  }
  void keep(const std::string& name, const RecordVersion& version, Generation generation) {
    const std::lock_guard lock{mutex_};
    if (entries_.size() >= kMaxEntries) entries_.clear();
    entries_.insert_or_assign(name, Entry{version, generation});
  }

 private:
  static constexpr std::size_t kMaxEntries = 16'384;  // about 2 MiB
  struct Entry {
    RecordVersion version;
    Generation generation = 0;
  };
  std::atomic<Generation> generation_ = 0;
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;  // under mutex_
};

}  // namespace atelier::jobs::internal
