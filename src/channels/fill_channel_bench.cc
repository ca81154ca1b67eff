// What File mode costs, for bench/d10:
//
//   fill_channel_bench URL put  S3URI COUNT BYTES   objects to measure with
//   fill_channel_bench URL read S3URI               every object read once and thrown away: the
//   server's speed fill_channel_bench URL fill S3URI FOLDER [CACHE]
//
// Prints one JSON line: seconds and CPU seconds of this process, files, bytes, files from the
// cache.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/parallel.h"
#include "channels/file_channel.h"
#include "objects/testing.h"

namespace {
using namespace atelier;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Result<channels::FileChannelReport> put(objects::ObjectStore& store, const std::string& uri,
                                        std::size_t count, std::size_t bytes) {
  const objects::Location place = TRY(objects::parse_s3_uri(uri));
  TRY(store.create_bucket(place.bucket));
  const std::string body(bytes, 'x');
  std::vector<objects::Upload> items;
  for (std::size_t i = 0; i < count; ++i) {
    items.push_back({fmt::format("{}{}/{:06}.jpg", place.key, i % 20, i), {}, body, {}});
  }
  TRY(store.upload_many(place.bucket, std::move(items), {}));
  channels::FileChannelReport report;
  report.files = count;
  report.bytes = count * bytes;
  return report;
}

Result<channels::FileChannelReport> read(objects::ObjectStore& store, const std::string& uri) {
  const objects::Location place = TRY(objects::parse_s3_uri(uri));
  channels::FileChannelReport report;
  std::vector<objects::ObjectInfo> found;
  objects::ListOptions options;
  options.prefix = place.key;
  do {
    objects::ListPage page = TRY(store.list(place.bucket, options));
    for (objects::ObjectInfo& object : page.objects) {
      report.bytes += object.size;
      found.push_back(std::move(object));
    }
    options.continuation_token = std::move(page.next_token);
  } while (!options.continuation_token.empty());
  report.files = found.size();
  TRY(for_each_parallel(found.size(), 32, [&](std::size_t i) -> Result<void> {
    TRY(store.get(place.bucket, found[i].key, {},
                  [](std::span<const std::byte>) -> Result<void> { return {}; }));
    return {};
  }));
  return report;
}

Result<channels::FileChannelReport> fill(objects::ObjectStore& store, const std::string& uri,
                                         const std::string& folder, const char* cache_folder) {
  channels::ChannelSource source;
  source.s3_uri = uri;
  if (cache_folder == nullptr) {
    return channels::fill_file_channel(store, source, folder, nullptr, {});
  }
  channels::ObjectCache cache = TRY(
      channels::ObjectCache::open(cache_folder, std::uint64_t{1} << 40, {"bench"}, geteuid() == 0));
  return channels::fill_file_channel(store, source, folder, &cache, {});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 3 ? argv[2] : "";
  objects::S3Endpoint endpoint;
  endpoint.url = argc > 1 ? argv[1] : "";
  endpoint.credentials = objects::testing::test_credentials();
  const auto store = objects::make_s3_client(endpoint);
  const auto begin = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  Result<channels::FileChannelReport> report =
      Error{Code::kInvalidArgument, "see the head of fill_channel_bench.cc"};
  if (what == "put" && argc == 6) {
    report = put(*store, argv[3], std::strtoull(argv[4], nullptr, 10),
                 std::strtoull(argv[5], nullptr, 10));
  } else if (what == "read") {
    report = read(*store, argv[3]);
  } else if (what == "fill" && argc > 4) {
    report = fill(*store, argv[3], argv[4], argc > 5 ? argv[5] : nullptr);
  }
  if (!report) {
    std::fprintf(stderr, "%s\n", report.error().message.c_str());
    return 1;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print(R"({{"seconds":{:.4f},"cpu_seconds":{:.4f},"files":{},"bytes":{},"from_cache":{}}})"
             "\n",
             took.count(), cpu_seconds() - cpu, report->files, report->bytes, report->from_cache);
  return 0;
}
