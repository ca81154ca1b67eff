// Load on any S3 server, for bench/s3-*: `s3_load FOLDER fill COUNT BYTES` puts objects into a
// store that no server has open; `s3_load URL,ACCESS,SECRET fill|list|get|large COUNT BYTES` asks a
// server, and prints how many operations it took how long: {"count", "bytes", "wall"}.
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "base/hash.h"
#include "base/rng.h"
#include "objects/local_store.h"
#include "objects/s3_client.h"

namespace atelier::objects {
namespace {

constexpr std::size_t kThreads = 8;
constexpr const char* kBucket = "bench";

std::string key_of(std::size_t i) { return fmt::format("train/class-{:02}/{:07}.jpg", i % 10, i); }

template <typename Work>
void in_parallel(std::size_t threads, std::size_t count, const Work& work) {
  std::vector<std::thread> pool;
  for (std::size_t t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      for (std::size_t i = t; i < count; i += threads) work(i);
    });
  }
  for (std::thread& thread : pool) thread.join();
}

void fill_store(const std::string& folder, std::size_t count, const std::string& bytes) {
  const auto store = LocalStore::open(folder, system_clock()).value();
  store->create_bucket(kBucket, "").value();
  const std::string etag = to_hex(digest(Digest::kMd5, bytes));
  const Checksum crc{ChecksumKind::kCrc64Nvme, false,
                     checksum_base64(ChecksumKind::kCrc64Nvme, bytes)};
  // As many writers as share an fsync.
  in_parallel(64, count, [&](std::size_t i) {
    auto body = store->start_body();
    body->append(std::as_bytes(std::span{bytes.data(), bytes.size()})).value();
    store
        ->put({.bucket = kBucket, .key = key_of(i), .etag = etag, .checksum = crc}, std::move(body))
        .value();
  });
}

std::size_t list_all(ObjectStore& store) {
  std::size_t count = 0;
  ListOptions options{.prefix = "train/"};
  while (true) {
    const ListPage page = store.list(kBucket, options).value();
    count += page.objects.size();
    if (page.next_token.empty()) return count;
    options.continuation_token = page.next_token;
  }
}

std::uint64_t get_all(ObjectStore& store, std::size_t count, std::size_t objects) {
  std::atomic<std::uint64_t> bytes = 0;
  in_parallel(kThreads, count, [&](std::size_t i) {
    const std::string key = key_of(rng(1, 2, i) % objects);
    bytes += store.get_bytes(kBucket, key, std::size_t{1} << 30).value().size();
  });
  return bytes;
}

std::uint64_t get_large(ObjectStore& store, std::size_t count) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    store
        .get(kBucket, "large", {},
             [&](std::span<const std::byte> piece) -> Result<void> {
               bytes += piece.size();
               return {};
             })
        .value();
  }
  return bytes;
}

int run(const std::vector<std::string>& arguments) {
  const std::string& target = arguments[0];
  const std::string& mode = arguments[1];
  const std::size_t count = std::stoul(arguments[2]);
  const std::size_t size = std::stoul(arguments[3]);
  const std::string bytes(mode == "fill" ? size : 0, 'x');
  if (!target.starts_with("http")) {
    fill_store(target, count, bytes);
    return 0;
  }
  const std::size_t first = target.find(',');
  const std::size_t second = target.find(',', first + 1);
  S3Endpoint endpoint{.url = target.substr(0, first)};
  endpoint.credentials = {target.substr(first + 1, second - first - 1), target.substr(second + 1),
                          ""};
  const auto store = make_s3_client(endpoint, {.max_connections = kThreads});
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t done = count;
  std::uint64_t moved = 0;
  if (mode == "fill") {
    store->create_bucket(kBucket).value();
    in_parallel(kThreads, count,
                [&](std::size_t i) { store->put(kBucket, key_of(i), bytes, {}).value(); });
  } else if (mode == "list") {
    done = list_all(*store);
  } else if (mode == "get") {
    moved = get_all(*store, count, size);
  } else if (mode == "put-large") {
    const TempFolder folder = TempFolder::create().value();
    const std::filesystem::path file = folder.path() / "large";
    std::ofstream{file, std::ios::binary} << std::string(size, 'l');
    store->put_file(kBucket, "large", file, {}, {}).value();
  } else {
    moved = get_large(*store, count);
  }
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{{\"count\": {}, \"bytes\": {}, \"wall\": {}}}\n", done, moved, wall);
  return 0;
}

}  // namespace
}  // namespace atelier::objects

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: s3_load FOLDER|URL,ACCESS,SECRET MODE COUNT BYTES\n");
    return 2;
  }
  return atelier::objects::run({argv + 1, argv + argc});
}
