#include "channels/file_channel.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <unordered_set>

#include "base/file.h"
#include "channels/find_objects.h"
#include "channels/folds_case.h"
#include "channels/manifest.h"

namespace atelier::channels {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBatchFiles = 4000;
constexpr std::uint64_t kBatchBytes = std::uint64_t{2} << 30;

using Kind = ChannelSource::Kind;

// The plan of an instance, and the manifest that its program sees.
struct Planned {
  ChannelPlan plan;
  std::string manifest;
};

std::vector<std::size_t> mine(const ChannelSource& source, std::size_t size) {
  return shard_of(size, source.sharded ? source.shard : Shard{}, source.shuffle_seed);
}

ChannelPlanner planner_for(const std::string& bucket, const fs::path& folder) {
  return {bucket, folder.native().size(), folds_case(folder)};
}

Result<Planned> plan_prefix(objects::ObjectStore& store, const ChannelSource& source,
                            const fs::path& folder) {
  const objects::Location location = TRY(objects::parse_s3_uri(source.s3_uri));
  ChannelPlanner planner = planner_for(location.bucket, folder);
  std::vector<objects::ObjectInfo> files;
  objects::ListOptions options;
  options.prefix = location.key;
  do {
    objects::ListPage page = TRY(store.list(location.bucket, options));
    for (objects::ObjectInfo& object : page.objects) {
      std::string name{name_below_prefix(object.key, location.key)};
      if (name.empty() || name.back() == '/') {
        TRY(planner.add(std::move(object), std::move(name)));  // a folder is everybody's
      } else {
        files.push_back(std::move(object));
      }
    }
    options.continuation_token = std::move(page.next_token);
  } while (!options.continuation_token.empty());
  if (files.empty()) {
    return Error{Code::kNotFound, fmt::format("no object under '{}'", location.uri())};
  }
  for (const std::size_t i : mine(source, files.size())) {
    std::string name{name_below_prefix(files[i].key, location.key)};
    TRY(planner.add(std::move(files[i]), std::move(name)));
  }
  if (source.newer_wins) planner.keep_newer();
  Planned planned;
  planned.plan = TRY(std::move(planner).finish());
  return planned;
}

Result<Planned> plan_manifest(objects::ObjectStore& store, const ChannelSource& source,
                              const fs::path& folder) {
  const objects::Location place = TRY(objects::parse_s3_uri(source.s3_uri));
  Planned planned;
  planned.manifest = TRY(store.get_bytes(place.bucket, place.key, kMaxManifestBytes));
  const Result<Manifest> read = parse_manifest(planned.manifest);
  if (!read) return read.error().within("manifest");
  std::vector<std::string> keys;
  for (const std::size_t i : mine(source, read->names.size())) {
    keys.push_back(read->prefix.key + read->names[i]);
  }
  ChannelPlanner planner = planner_for(read->prefix.bucket, folder);
  for (objects::ObjectInfo& object :
       TRY(find_objects(store, read->prefix.bucket, std::move(keys)))) {
    std::string name = object.key.substr(read->prefix.key.size());
    // "s3://b/train" and "/a.jpg" are written by people as well.
    name.erase(0, std::min(name.find_first_not_of('/'), name.size()));
    TRY(planner.add(std::move(object), std::move(name)));
  }
  planned.plan = TRY(std::move(planner).finish());
  return planned;
}

Result<Planned> plan_augmented(objects::ObjectStore& store, const ChannelSource& source,
                               const fs::path& folder) {
  const objects::Location place = TRY(objects::parse_s3_uri(source.s3_uri));
  const std::string text = TRY(store.get_bytes(place.bucket, place.key, kMaxManifestBytes));
  const Result<std::vector<AugmentedLine>> lines =
      parse_augmented_manifest(text, source.attribute_names);
  if (!lines) return lines.error().within("augmented manifest");
  Planned planned;
  std::vector<std::string> keys;
  std::string bucket;
  for (const std::size_t i : mine(source, lines->size())) {
    const AugmentedLine& line = (*lines)[i];
    planned.manifest += line.text + '\n';
    for (const objects::Location& reference : line.references) {
      if (bucket.empty()) bucket = reference.bucket;
      if (reference.bucket != bucket) {
        return Error{Code::kInvalidArgument,
                     fmt::format("augmented manifest: '{}' lies in another bucket than '{}'; all "
                                 "objects of a channel come from one",
                                 reference.uri(), bucket)};
      }
      keys.push_back(reference.key);
    }
  }
  ChannelPlanner planner = planner_for(bucket, folder);
  for (objects::ObjectInfo& object : TRY(find_objects(store, bucket, std::move(keys)))) {
    std::string name = object.key;
    TRY(planner.add(std::move(object), std::move(name)));
  }
  planned.plan = TRY(std::move(planner).finish());
  return planned;
}

Result<Planned> plan_source(objects::ObjectStore& store, const ChannelSource& source,
                            const fs::path& folder) {
  switch (source.kind) {
    case Kind::kPrefix:
      return plan_prefix(store, source, folder);
    case Kind::kManifest:
      return plan_manifest(store, source, folder);
    case Kind::kAugmentedManifest:
      return plan_augmented(store, source, folder);
  }
  return Error{Code::kInternal, "a channel of no kind"};
}

Result<void> check_space(std::uint64_t bytes, const fs::path& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) {
    return error_from_errno("statvfs '" + folder.string() + "'", errno);
  }
  const std::uint64_t free = std::uint64_t{info.f_bavail} * info.f_frsize;
  if (bytes <= free) return {};
  return Error{Code::kResourceExhausted,
               fmt::format("the channel has {} bytes, and the disk of '{}' has {} free", bytes,
                           folder.string(), free)};
}

// Between two batches the connections run dry for a moment, so they are large; but a stop has to
// get through.
Result<void> download(objects::ObjectStore& store, ChannelPlan plan, const fs::path& folder,
                      const objects::Progress& progress, const std::function<bool()>& cancelled) {
  TRY(check_space(plan.bytes, folder));
  std::uint64_t done = 0;
  for (std::size_t first = 0; first < plan.files.size();) {
    if (cancelled && cancelled()) return Error{Code::kCancelled, "the download was stopped"};
    std::vector<objects::Download> batch;
    std::uint64_t bytes = 0;
    while (first < plan.files.size() && batch.size() < kBatchFiles && bytes < kBatchBytes) {
      PlannedFile& file = plan.files[first++];
      bytes += file.object.size;
      batch.push_back({std::move(file.object.key), file.object.size, std::move(file.object.etag),
                       folder / file.name});
    }
    objects::Progress batch_progress;
    if (progress) {
      batch_progress = [&progress, done, total = plan.bytes](std::uint64_t now, std::uint64_t) {
        progress(done + now, total);
      };
    }
    TRY(store.download_many(plan.bucket, std::move(batch), batch_progress));
    done += bytes;
  }
  return {};
}

}  // namespace

Result<FileChannelReport> fill_file_channel(objects::ObjectStore& store,
                                            const ChannelSource& source, const fs::path& folder,
                                            ObjectCache* cache, const objects::Progress& progress,
                                            const std::function<bool()>& cancelled) {
  Planned planned = TRY(plan_source(store, source, folder));
  ChannelPlan& plan = planned.plan;
  TRY(make_folders(folder));
  for (const std::string& name : plan.folders) TRY(make_folders(folder / name));
  FileChannelReport report;
  report.files = plan.files.size();
  report.bytes = plan.bytes;
  report.manifest = std::move(planned.manifest);
  if (cache == nullptr) {
    TRY(download(store, std::move(plan), folder, progress, cancelled));
    return report;
  }
  std::vector<CacheFile> files;
  files.reserve(plan.files.size());
  for (PlannedFile& file : plan.files) {
    files.push_back({std::move(file.object), folder / file.name});
  }
  report.from_cache =
      TRY(cache->fill(store, plan.bucket, std::move(files), progress, cancelled)).found;
  return report;
}

Result<FileChannelReport> fill_file_channel(objects::ObjectStore& store, const std::string& s3_uri,
                                            const fs::path& folder,
                                            const objects::Progress& progress,
                                            const std::function<bool()>& cancelled) {
  ChannelSource source;
  source.s3_uri = s3_uri;
  return fill_file_channel(store, source, folder, nullptr, progress, cancelled);
}

}  // namespace atelier::channels
