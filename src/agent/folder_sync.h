// One folder of a running job and its copy in S3: restored before the start, copied by whole files
// while the program runs, and brought up to date at its end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "agent/ml_tree.h"
#include "agent/sync_ledger.h"
#include "agent/sync_records.h"
#include "agent/volume_watch.h"
#include "base/result.h"
#include "objects/object_store.h"

namespace atelier::agent {

struct FolderSyncOptions {
  std::string title;           // in messages: "checkpoints"
  objects::Location target{};  // the key is empty or ends with '/'
  SyncRules rules{};           // prefix_bytes is filled in
  std::filesystem::path records{};
  Bound largest{std::numeric_limits<std::uint64_t>::max(), 0};  // of one file
  // Between two looks; longer where a look itself takes long, so that looking costs at most a
  // fiftieth of one CPU.
  std::chrono::milliseconds interval{1000};
};

struct SyncReport {
  std::uint64_t files = 0;  // copied in all, and their bytes
  std::uint64_t bytes = 0;
  std::vector<std::string> left_out{};  // not copied: may be half written
  std::vector<std::string> no_key{};    // not copied: S3 has no such names
  bool folder_gone = false;             // then nothing is copied and nothing is removed
  bool unrestored = false;              // the same: it never had all that S3 has
};

// Owned by the agent's thread, which makes all calls; after begin() there is a thread of its own.
// Store, tree and `note` (safe from threads) outlive it.
class FolderSync {
 public:
  // Goes on from the records of an earlier agent, where there are some.
  static Result<std::unique_ptr<FolderSync>> open(objects::ObjectStore& store, MlTree& tree,
                                                  std::string folder, FolderSyncOptions options,
                                                  std::function<void(std::string_view)> note);
  ~FolderSync();
  FolderSync(const FolderSync&) = delete;
  FolderSync& operator=(const FolderSync&) = delete;

  // Copies what S3 has into the empty folder, byte for byte, with the times of the files.
  Result<void> restore(const objects::Progress& progress);
  // From now on the folder is watched, until finish().
  Result<void> begin();
  // A look now, without copying: for the moment before the program is killed, after which nobody
  // can tell a half-written file. `died_before` (safe from threads) says before which time, by the
  // wall clock in nanoseconds, a process of the program may have died since the first of these
  // looks; it is asked after each one from now on.
  void look(const std::function<std::int64_t()>& died_before = {});
  // Ends the watching and copies nothing more. A copy that is on its way ends with its store.
  void stop();
  // Brings S3 up to date with what the program has left. May be repeated after an Error. Without
  // the folder, or after a restore that has not ended, it does nothing; report() says so.
  Result<void> finish(ProgramState state);
  [[nodiscard]] SyncReport report() const;

  // One look and what is due by it; the thread does nothing else. False when something could not be
  // copied that is due again.
  Result<bool> round(ProgramState state);

 private:
  FolderSync(objects::ObjectStore& store, MlTree& tree, std::string folder,
             FolderSyncOptions options, std::function<void(std::string_view)> note);
  [[nodiscard]] std::string path_of(const std::string& name) const;  // in the tree
  Result<Look> look_now();                                           // under the mutex
  Result<SyncStep> next_step(ProgramState state);
  Result<bool> copy(const std::vector<DueFile>& files);
  Result<bool> copy_file(const DueFile& file);
  Result<void> remove(const std::vector<std::string>& names);
  void set_times(const std::vector<std::string>& names);
  void watch();
  [[nodiscard]] std::chrono::milliseconds pause_after_a_look() const;
  void say(const Result<bool>& outcome);
  Result<void> shorten_records();

  objects::ObjectStore& store_;
  MlTree& tree_;
  const std::string folder_;
  const FolderSyncOptions options_;
  const std::function<void(std::string_view)> note_;

  mutable std::mutex mutex_;  // guards what follows; a look is taken under it
  SyncLedger ledger_;
  std::optional<SyncRecords> records_;
  bool restoring_ = false;  // until a restore that has begun is whole
  std::chrono::milliseconds look_cost_{0};
  std::function<std::int64_t()> died_before_;
  SyncReport report_;
  std::string trouble_;  // what was said last about copies that fail

  std::mutex stop_mutex_;
  std::condition_variable stop_asked_;
  bool stopping_ = false;
  std::thread thread_;
};

// "1700000000.000000001": seconds since 1970, as rclone keeps a file's time beside its object.
std::string time_words(std::int64_t nanoseconds);
std::optional<std::int64_t> parse_time_words(std::string_view text);

}  // namespace atelier::agent
