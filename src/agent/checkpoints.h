// The folders of a job that are copied to S3 while it runs: checkpoints (CheckpointConfig), which
// are restored before the start, and TensorBoard files (TensorBoardOutputConfig).
//
//   checkpoints = Checkpoints::open(...)      after prepare_ml_tree(); null without either
//   checkpoints->restore()                    while data is downloaded
//   checkpoints->begin()                      before the program starts
//   checkpoints->look()                       right before the program is sent a signal, and from
//                                             then on until it has ended
//   checkpoints->abandon()                    when no program comes to run
//   checkpoints->finish(state, deadline)      once the program has ended, by this agent or the next
//
// A program that is to go on elsewhere (an interrupted spot job) has its last state in S3 when
// finish() has returned; restore() of the next attempt finds it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/folder_sync.h"
#include "agent/job_log.h"
#include "agent/job_run.h"
#include "agent/ml_tree.h"
#include "agent/spec.h"
#include "agent/supervisor.h"
#include "base/result.h"
#include "compute/sandbox.h"

namespace atelier::agent {

class Checkpoints {
 public:
  // All arguments outlive it.
  static Result<std::unique_ptr<Checkpoints>> open(const AgentSpec& spec,
                                                   const std::filesystem::path& job_folder,
                                                   MlTree& tree, const StoreFactory& make_store,
                                                   const StopRequest& stop, JobLog& log);

  // kCancelled once a stop is asked for. Messages name the folder and its place in S3.
  Result<void> restore();
  Result<void> begin();
  void look(const std::function<std::int64_t()>& died_before);
  // Ends the watching at once and copies nothing more: for a program that has not run.
  void abandon();
  // Brings S3 up to date. Waits for a store that is away, until the deadline if there is one
  // and until the job is stopped again (kCancelled). May be repeated.
  Result<void> finish(ProgramState state,
                      std::optional<std::chrono::steady_clock::time_point> deadline = {});
  // After finish(): what a user has to know about files that were not copied.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  struct Folder {
    std::string title{};
    std::string local_path{};
    objects::Location target{};
    bool restored = false;               // and its deletions are mirrored
    std::unique_ptr<MlTree> own_tree{};  // of a LocalPath outside of /opt/ml
    std::unique_ptr<FolderSync> sync{};
  };
  Checkpoints(const StopRequest& stop, JobLog& log) : stop_(stop), log_(log) {}
  Result<void> add(const AgentSpec& spec, const std::filesystem::path& job_folder, MlTree& tree,
                   const SyncedFolder& folder, Folder entry);
  [[nodiscard]] bool cancelled() const;

  const StopRequest& stop_;
  JobLog& log_;
  std::atomic<bool> restoring_ = false;
  std::atomic<std::chrono::steady_clock::rep> deadline_;
  std::unique_ptr<objects::ObjectStore> store_;
  std::vector<Folder> folders_;  // after the store, which their threads use
};

// Mounts of the folders whose LocalPath is not below /opt/ml. Their host folders exist after
// open().
std::vector<compute::BindMount> checkpoint_mounts(const AgentSpec& spec,
                                                  const std::filesystem::path& job_folder);

// Removes what they keep in the job's folder besides /opt/ml; `with_files` also the files
// themselves.
Result<void> remove_checkpoints(const std::filesystem::path& job_folder, bool with_files);

}  // namespace atelier::agent
