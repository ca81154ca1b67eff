#include "agent/job_inputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "agent/archive.h"
#include "base/file.h"
#include "base/hash.h"
#include "channels/file_channel.h"
#include "channels/object_cache.h"
#include "compute/sandbox.h"
#include "objects/object_store.h"

namespace atelier::agent {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxSourceArchive = std::uint64_t{4} << 30;
constexpr std::chrono::seconds kProgressInterval{5};

std::string size_words(std::uint64_t bytes) {
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

Result<channels::ChannelSource> source_of(const ChannelSpec& channel) {
  using Kind = channels::ChannelSource::Kind;
  channels::ChannelSource source;
  source.s3_uri = channel.s3_uri;
  source.attribute_names = channel.attribute_names;
  source.sharded = channel.distribution == "ShardedByS3Key";
  source.shard = {static_cast<std::size_t>(channel.shard_index),
                  static_cast<std::size_t>(channel.shard_count)};
  if (channel.shuffle_seed) source.shuffle_seed = static_cast<std::uint64_t>(*channel.shuffle_seed);
  if (channel.s3_data_type == "ManifestFile") source.kind = Kind::kManifest;
  if (channel.s3_data_type == "AugmentedManifestFile") source.kind = Kind::kAugmentedManifest;
  const bool known = source.kind != Kind::kPrefix || channel.s3_data_type == "S3Prefix";
  if (channel.input_mode == "File" && known) return source;
  return Error{Code::kUnimplemented,
               fmt::format("ClientError: channel '{}': {} mode with {} is not offered yet",
                           channel.name, channel.input_mode, channel.s3_data_type)};
}

// Files are links into the cache where the program is another user of the host than we are, and
// can therefore not change them.
Result<std::optional<channels::ObjectCache>> open_cache(const AgentSpec& spec) {
  std::optional<channels::ObjectCache> cache;
  if (spec.cache_folder.empty() || spec.cache_bytes == 0) return cache;
  const bool may_link = compute::program_identity(spec.job_name).uid != geteuid();
  // Our own server comes back on another port and is still the same store.
  channels::CacheStore store{spec.s3.url_file, true};
  if (spec.s3.url_file.empty()) {
    store = {spec.s3.url + ' ' + sha256_hex(spec.s3.credentials.access_key), false};
  }
  cache = TRY(
      channels::ObjectCache::open(spec.cache_folder, spec.cache_bytes, std::move(store), may_link));
  return cache;
}

}  // namespace

bool belongs_to_program(const AgentSpec& spec, const ChannelSpec& channel) {
  return !spec.container_entrypoint.empty() &&
         (channel.name == "code" || channel.name == "sm_drivers");
}

Result<void> JobInputs::sync_cache() const {
  std::optional<channels::ObjectCache> cache = TRY(open_cache(spec));
  return cache ? cache->sync() : Result<void>{};
}

Result<bool> JobInputs::fill(const ChannelSpec& channel) const {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<std::int64_t> next_note{(begin + kProgressInterval).time_since_epoch().count()};
  const auto progress = [&](std::uint64_t done, std::uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    std::int64_t due = next_note.load();
    if (now.time_since_epoch().count() < due) return;
    const auto next = (now + kProgressInterval).time_since_epoch().count();
    if (!next_note.compare_exchange_strong(due, next)) return;
    log.note(fmt::format("[atelier] channel '{}': {} of {}", channel.name, size_words(done),
                         size_words(total)));
  };
  const std::string name = "input/data/" + channel.name;
  TRY(tree.make_folder(name));
  const channels::ChannelSource source = TRY(source_of(channel));
  std::optional<channels::ObjectCache> cache;
  if (!belongs_to_program(spec, channel)) cache = TRY(open_cache(spec));
  const auto report =
      channels::fill_file_channel(store(), source, tree.folder() / name, cache ? &*cache : nullptr,
                                  progress, [this] { return stop.any(); });
  if (!report) {
    if (report.error().code == Code::kCancelled) return report.error();
    return report.error().within(
        fmt::format("ClientError: data of channel '{}' ({})", channel.name, channel.s3_uri));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  log.note(fmt::format("[atelier] channel '{}': {} files, {} in {:.1f} s{}", channel.name,
                       report->files, size_words(report->bytes), took.count(),
                       report->from_cache > 0
                           ? fmt::format("; {} were on this host already", report->from_cache)
                           : std::string{}));
  if (!report->manifest.empty()) TRY(tree.write_file(name + "-manifest", report->manifest));
  return cache && report->from_cache < report->files;
}

Result<void> JobInputs::fetch_source(const ScriptSource& source) const {
  const auto stopped = [this] { return stop.any(); };
  if (source.kind == ScriptSource::Kind::kNone) return {};
  if (source.kind == ScriptSource::Kind::kChannel) {
    constexpr std::string_view kBase = "/opt/ml/";
    if (source.location.rfind(kBase, 0) != 0) {
      return Error{Code::kInvalidArgument, "'" + source.location + "' is not below /opt/ml"};
    }
    const UniqueFd fd = TRY(tree.open_file(source.location.substr(kBase.size())));
    return unpack_archive(fd.get(), tree, "code", {}, stopped);
  }
  const objects::Location location = TRY(objects::parse_s3_uri(source.location));
  const fs::path path = folder / "sourcedir.tar.gz";
  const UniqueFd fd = TRY(open_file(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
  unlink(path.c_str());
  std::uint64_t bytes = 0;
  const auto got = store().get(
      location.bucket, location.key, {}, [&](std::span<const std::byte> piece) -> Result<void> {
        bytes += piece.size();
        if (bytes > kMaxSourceArchive) {
          return Error{Code::kResourceExhausted,
                       fmt::format("larger than the limit of {} bytes", kMaxSourceArchive)};
        }
        return write_all(fd.get(), piece);
      });
  if (!got) return got.error().within(location.uri());
  if (lseek(fd.get(), 0, SEEK_SET) != 0) return error_from_errno("lseek", errno);
  const Result<void> unpacked = unpack_archive(fd.get(), tree, "code", {}, stopped);
  if (!unpacked) return unpacked.error().within(location.uri());
  return {};
}

}  // namespace atelier::agent
