#include "agent/delivery.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <map>

#include "agent/archive.h"
#include "agent/instances.h"
#include "agent/volume_watch.h"
#include "base/file.h"
#include "compute/sandbox.h"

namespace atelier::agent {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::size_t kBatchFiles = 1000;
constexpr std::chrono::milliseconds kLookInterval{100};

// An open file, reachable by a path for as long as the descriptor is open: the object store opens
// paths, and a path into the program's tree could lead anywhere.
std::filesystem::path path_of(const UniqueFd& fd) {
  return "/proc/self/fd/" + std::to_string(fd.get());
}

// Whether packing goes on. It is asked for every piece, and looks now and then.
class PackingEnd {
 public:
  PackingEnd(const StopRequest& stop, std::chrono::seconds time)
      : stop_(stop), time_(time), end_(Steady::now() + time) {}

  Result<void> operator()() {
    const Steady::time_point now = Steady::now();
    if (now < look_due_) return {};
    look_due_ = now + kLookInterval;
    if (stop_.made_again()) return Error{Code::kCancelled, "the job was stopped again"};
    if (now < end_) return {};
    return Error{
        Code::kDeadlineExceeded,
        fmt::format("this took more than the {} s that there are for it, and is given up; a "
                    "file with holes takes as long as one without",
                    time_.count())};
  }

 private:
  const StopRequest& stop_;
  const std::chrono::seconds time_;
  const Steady::time_point end_;
  Steady::time_point look_due_{};
};

}  // namespace

Result<objects::Location> Delivery::place(const std::string& name) const {
  objects::Location location = TRY(objects::parse_s3_uri(spec_.output_s3_uri));
  if (!location.key.empty() && location.key.back() != '/') location.key += '/';
  location.key += spec_.job_name + "/output/" + name;
  return location;
}

Result<void> Delivery::model() {
  return spec_.compress_output ? archive("model", "model.tar.gz") : files("model", "model/");
}

Result<void> Delivery::output() {
  if (TRY(list_trees(trees_, "output/data")).entries.empty()) return {};
  return spec_.compress_output ? archive("output/data", "output.tar.gz")
                               : files("output/data", "data/");
}

// A file with holes takes no room on the disk and all of its size on the way to S3: before anything
// is packed, the sizes are compared with what an instance can have written.
Result<MergedTrees> Delivery::list(const std::string& folder) const {
  MergedTrees merged = TRY(list_trees(trees_, folder));
  const Bound bound = TRY(largest_copy(spec_, scratch_));
  std::map<const MlTree*, std::uint64_t> sizes;
  for (const auto& [tree, entry] : merged.entries) {
    std::uint64_t& size = sizes[tree];
    if (entry.size > bound.bytes || (size += entry.size) > bound.bytes) {
      return bound.error(fmt::format("/opt/ml/{}/{}", folder, entry.name), entry.size);
    }
  }
  return merged;
}

Result<void> Delivery::archive(const std::string& folder, const std::string& name) {
  const objects::Location location = TRY(place(name));
  const std::filesystem::path path = scratch_ / name;
  const UniqueFd fd = TRY(open_file(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
  // Without a name, so that nothing of it is left behind, whatever ends the upload.
  unlink(path.c_str());
  TRY(list(folder));
  const Result<std::vector<std::string>> packed =
      pack_folders(trees_, folder, fd.get(), PackingEnd{stop_, packing_time_});
  if (!packed) return packed.error().within("pack /opt/ml/" + folder);
  left_out_.insert(left_out_.end(), packed->begin(), packed->end());
  objects::PutOptions options;
  options.content_type = "application/x-tar";
  const Result<objects::ObjectInfo> put =
      store_.put_file(location.bucket, location.key, path_of(fd), options, {});
  if (!put) return put.error().within("upload of /opt/ml/" + folder + " to " + location.uri());
  return {};
}

Result<void> Delivery::files(const std::string& folder, const std::string& name) {
  const objects::Location location = TRY(place(name));
  const MergedTrees merged = TRY(list(folder));
  const std::vector<MergedTrees::Item>& entries = merged.entries;
  left_out_.insert(left_out_.end(), merged.left_out.begin(), merged.left_out.end());
  for (std::size_t next = 0; next < entries.size();) {
    std::vector<objects::Upload> batch;
    std::vector<UniqueFd> open;
    for (; next < entries.size() && batch.size() < kBatchFiles; ++next) {
      const auto& [tree, entry] = entries[next];
      // S3 has no folders and no links.
      if (entry.kind != TreeEntry::Kind::kFile) continue;
      open.push_back(TRY(tree->open_file(folder + "/" + entry.name)));
      batch.push_back({location.key + entry.name, path_of(open.back()), {}, {}});
    }
    if (batch.empty()) continue;
    const Result<void> put = store_.upload_many(location.bucket, std::move(batch), {});
    if (!put) return put.error().within("upload of /opt/ml/" + folder + " to " + location.uri());
  }
  return {};
}

DeliveryOutcome deliver_results(objects::ObjectStore& store, const AgentSpec& spec,
                                const std::filesystem::path& job_folder, const MlTree& tree,
                                const StopRequest& stop, std::chrono::seconds packing_time,
                                bool with_model) {
  std::vector<MlTree> others;
  for (const std::string& host : instance_hosts(job_folder)) {
    if (host == spec.host) continue;
    const auto owner = compute::program_identity(identity_name(spec, host));
    Result<MlTree> opened = MlTree::open(instance_folder(job_folder, host) / "ml", owner);
    if (!opened) return {opened.error(), {}, {}};
    others.push_back(*std::move(opened));
  }
  std::vector<const MlTree*> trees{&tree};
  for (const MlTree& other : others) trees.push_back(&other);
  Delivery delivery{store, spec, std::move(trees), job_folder, stop, packing_time};
  DeliveryOutcome outcome;
  outcome.output = delivery.output();
  if (with_model) outcome.model = delivery.model();
  outcome.left_out = delivery.left_out();
  return outcome;
}

}  // namespace atelier::agent
