#include "agent/checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "agent/instances.h"
#include "agent/local_path.h"
#include "base/file.h"

namespace atelier::agent {
namespace fs = std::filesystem;
namespace {

using Steady = std::chrono::steady_clock;

constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kTensorBoard = "tensorboard";
constexpr std::size_t kNamesSaid = 5;

fs::path outside_folder(const fs::path& job_folder, const std::string& title) {
  return job_folder / (title + ".files");
}

fs::path records_file(const fs::path& job_folder, const std::string& title) {
  return job_folder / (title + ".records");
}

// "ckpt/job-1" is the folder, not also "ckpt/job-10".
Result<objects::Location> place_below(const std::string& uri, const std::string& rest) {
  objects::Location location = TRY(objects::parse_s3_uri(uri));
  if (!location.key.empty() && location.key.back() != '/') location.key += '/';
  location.key += rest;
  return location;
}

std::string some_of(const std::vector<std::string>& names) {
  const std::size_t count = std::min(names.size(), kNamesSaid);
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<long>(count));
  return fmt::format("'{}'{}", fmt::join(first, "', '"), names.size() > count ? ", ..." : "");
}

}  // namespace

Result<std::unique_ptr<Checkpoints>> Checkpoints::open(const AgentSpec& spec,
                                                       const fs::path& job_folder, MlTree& tree,
                                                       const StoreFactory& make_store,
                                                       const StopRequest& stop, JobLog& log) {
  std::unique_ptr<Checkpoints> all;
  if (!spec.checkpoints && !spec.tensorboard) return all;
  all.reset(new Checkpoints{stop, log});
  all->deadline_ = Steady::time_point::max().time_since_epoch().count();
  all->store_ = make_store(spec.s3, [self = all.get()] { return self->cancelled(); });
  if (spec.checkpoints) {
    Folder folder{.title = kCheckpoints, .target = {}, .restored = true};
    folder.target = TRY(place_below(spec.checkpoints->s3_uri, ""));
    TRY(all->add(spec, job_folder, tree, *spec.checkpoints, std::move(folder)));
  }
  if (spec.tensorboard) {
    Folder folder{.title = kTensorBoard, .target = {}};
    // Where the SDK looks for them.
    folder.target =
        TRY(place_below(spec.tensorboard->s3_uri, spec.job_name + "/tensorboard-output/"));
    TRY(all->add(spec, job_folder, tree, *spec.tensorboard, std::move(folder)));
  }
  return all;
}

Result<void> Checkpoints::add(const AgentSpec& spec, const fs::path& job_folder, MlTree& tree,
                              const SyncedFolder& folder, Folder entry) {
  const LocalPath place = TRY(place_local_path(folder.local_path));
  entry.local_path = folder.local_path;
  MlTree* where = &tree;
  if (!place.outside.empty()) {
    entry.own_tree = std::make_unique<MlTree>(TRY(MlTree::open(
        outside_folder(job_folder, entry.title), compute::program_identity(identity_name(spec)))));
    where = entry.own_tree.get();
  }
  FolderSyncOptions options;
  options.title = entry.title;
  options.target = entry.target;
  options.largest = TRY(largest_copy(spec, job_folder));
  options.records = records_file(job_folder, entry.title);
  options.rules.mirror_deletions = entry.restored;
  // Event files grow for as long as a job runs, and are read as far as they are whole.
  options.rules.copy_open_files = !entry.restored;
  options.rules.leave_temporary = entry.restored;
  entry.sync = TRY(FolderSync::open(*store_, *where, place.in_ml, std::move(options),
                                    [this](std::string_view line) { log_.note(line); }));
  folders_.push_back(std::move(entry));
  return {};
}

bool Checkpoints::cancelled() const {
  return (restoring_ && stop_.any()) || stop_.made_again() ||
         Steady::now().time_since_epoch().count() >= deadline_.load();
}

Result<void> Checkpoints::restore() {
  restoring_ = true;
  for (const Folder& folder : folders_) {
    if (!folder.restored) continue;
    const Result<void> restored = folder.sync->restore({});
    if (restored) continue;
    if (restored.error().code == Code::kCancelled) return restored.error();
    return restored.error().within(
        fmt::format("checkpoints of {} to {}", folder.target.uri(), folder.local_path));
  }
  restoring_ = false;
  return {};
}

Result<void> Checkpoints::begin() {
  for (const Folder& folder : folders_) TRY(folder.sync->begin());
  return {};
}

void Checkpoints::look(const std::function<std::int64_t()>& died_before) {
  for (const Folder& folder : folders_) folder.sync->look(died_before);
}

void Checkpoints::abandon() {
  deadline_ = Steady::now().time_since_epoch().count();
  for (const Folder& folder : folders_) folder.sync->stop();
}

Result<void> Checkpoints::finish(ProgramState state, std::optional<Steady::time_point> deadline) {
  deadline_ = deadline.value_or(Steady::time_point::max()).time_since_epoch().count();
  Result<void> outcome;
  for (const Folder& folder : folders_) {
    const Result<void> finished = folder.sync->finish(state);
    if (finished) {
      const SyncReport report = folder.sync->report();
      log_.note(fmt::format("[atelier] {}: {} copies, {} bytes went to {}", folder.title,
                            report.files, report.bytes, folder.target.uri()));
    } else if (outcome) {
      outcome = finished.error().within(
          fmt::format("{} in {} to {}", folder.title, folder.local_path, folder.target.uri()));
    }
  }
  return outcome;
}

std::vector<std::string> Checkpoints::warnings() const {
  std::vector<std::string> words;
  for (const Folder& folder : folders_) {
    const SyncReport report = folder.sync->report();
    if (report.folder_gone) {
      words.push_back(fmt::format(
          "{}: {} is not there any more, so nothing of it was copied; {} is left as it was",
          folder.title, folder.local_path, folder.target.uri()));
    }
    if (report.unrestored) {
      words.push_back(fmt::format(
          "{}: nothing in {} was copied, for not all of {} was restored when the job ended",
          folder.title, folder.local_path, folder.target.uri()));
    }
    if (!report.left_out.empty()) {
      words.push_back(fmt::format(
          "{}: {} files in {} were not copied, for the program was killed and they may be half "
          "written: {}",
          folder.title, report.left_out.size(), folder.local_path, some_of(report.left_out)));
    }
    if (!report.no_key.empty()) {
      words.push_back(fmt::format(
          "{}: {} files in {} were not copied, for S3 has no such names "
          "(UTF-8, 1,024 bytes with the prefix): {}",
          folder.title, report.no_key.size(), folder.local_path, some_of(report.no_key)));
    }
  }
  return words;
}

std::vector<compute::BindMount> checkpoint_mounts(const AgentSpec& spec,
                                                  const fs::path& job_folder) {
  std::vector<compute::BindMount> mounts;
  const auto add = [&](const std::optional<SyncedFolder>& folder, const std::string& title) {
    if (!folder) return;
    const Result<LocalPath> place = place_local_path(folder->local_path);
    if (!place || place->outside.empty()) return;
    mounts.push_back({outside_folder(job_folder, title), place->outside, true});
  };
  add(spec.checkpoints, kCheckpoints);
  add(spec.tensorboard, kTensorBoard);
  return mounts;
}

Result<void> remove_checkpoints(const fs::path& job_folder, bool with_files) {
  for (const char* title : {kCheckpoints, kTensorBoard}) {
    unlink(records_file(job_folder, title).c_str());
    if (with_files) TRY(remove_tree(outside_folder(job_folder, title)));
  }
  return {};
}

}  // namespace atelier::agent
