// What the object store costs: operations per second and CPU per operation, through the engine
// alone and through HTTP with our own client.
//
//   objects_bench [FOLDER] [small objects] [large MiB]
#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include "base/hash.h"
#include "base/rng.h"
#include "objects/local_store.h"
#include "objects/testing.h"

namespace atelier::objects {
namespace {

namespace fs = std::filesystem;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string bytes_of(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(rng(1, 1, i / 8) >> (i % 8));
  return bytes;
}

// Runs `work` and prints what one of its `count` operations cost.
void measure(const std::string& what, std::size_t count, std::size_t bytes,
             const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  work();
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double used = cpu_seconds() - cpu;
  const auto n = static_cast<double>(count);
  fmt::print("{:<44} {:>9.0f} /s {:>8.1f} us CPU each {:>8.1f} MB/s\n", what, n / wall,
             used / n * 1e6, n * static_cast<double>(bytes) / wall / 1e6);
  std::fflush(stdout);
}

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

std::string key_of(std::size_t i) { return fmt::format("train/class-{:02}/{:07}.png", i % 10, i); }

void bench_engine(const fs::path& folder, std::size_t count, std::size_t size,
                  std::size_t threads) {
  auto store = LocalStore::open(folder, system_clock()).value();
  store->create_bucket("bench", "").value();
  const std::string bytes = bytes_of(size);
  const std::string etag = to_hex(digest(Digest::kMd5, bytes));
  measure(fmt::format("engine put {} B, {} threads", size, threads), count, size, [&] {
    in_parallel(threads, count, [&](std::size_t i) {
      auto body = store->start_body();
      body->append(std::as_bytes(std::span{bytes.data(), bytes.size()})).value();
      store->put({.bucket = "bench", .key = key_of(i), .etag = etag}, std::move(body)).value();
    });
  });
  measure(fmt::format("engine get {} B, 2 threads", size), count, size, [&] {
    in_parallel(2, count, [&](std::size_t i) { store->get("bench", key_of(i)).value(); });
  });
}

void bench_http(const fs::path& folder, std::size_t count, std::size_t size) {
  testing::EmbeddedS3 server{folder / "store", {.worker_threads = 32}};
  const auto client = make_s3_client(server.endpoint(), {.max_connections = 32});
  client->create_bucket("bench").value();
  const std::string bytes = bytes_of(size);
  std::vector<Upload> uploads;
  for (std::size_t i = 0; i < count; ++i) uploads.push_back({key_of(i), {}, bytes, {}});
  measure(fmt::format("HTTP put {} B (client + server)", size), count, size,
          [&] { client->upload_many("bench", std::move(uploads), {}).value(); });
  std::vector<Download> downloads;
  measure(fmt::format("HTTP list {} keys, 1000 a page", count), count, 0, [&] {
    ListOptions options;
    while (true) {
      const ListPage page = client->list("bench", options).value();
      for (const ObjectInfo& object : page.objects) {
        downloads.push_back({object.key, object.size, object.etag, folder / "down" / object.key});
      }
      if (page.next_token.empty()) break;
      options.continuation_token = page.next_token;
    }
  });
  measure(fmt::format("HTTP get {} B to files (client + server)", size), count, size,
          [&] { client->download_many("bench", std::move(downloads), {}).value(); });
}

void bench_large(const fs::path& folder, std::size_t mib) {
  testing::EmbeddedS3 server{folder / "store", {.worker_threads = 32}};
  const auto client = make_s3_client(server.endpoint());
  client->create_bucket("bench").value();
  const std::string piece = bytes_of(1 << 20);
  {
    std::ofstream file{folder / "large", std::ios::binary};
    for (std::size_t i = 0; i < mib; ++i) file << piece;
  }
  const std::size_t bytes = mib << 20;
  ObjectInfo info;
  measure(fmt::format("HTTP upload {} MiB in parts", mib), 1, bytes,
          [&] { info = client->put_file("bench", "large", folder / "large", {}, {}).value(); });
  measure(fmt::format("HTTP download {} MiB", mib), 1, bytes, [&] {
    client->download_many("bench", {{"large", info.size, info.etag, folder / "back"}}, {}).value();
  });
}

}  // namespace
}  // namespace atelier::objects

int main(int argc, char** argv) {
  using namespace atelier::objects;
  const std::filesystem::path parent = argc > 1 ? argv[1] : "";
  const std::size_t count = argc > 2 ? std::stoul(argv[2]) : 70'000;
  const std::size_t mib = argc > 3 ? std::stoul(argv[3]) : 1024;
  const auto run = [&](const auto& bench) {
    const atelier::TempFolder folder = atelier::TempFolder::create(parent).value();
    bench(folder.path());
  };
  run([&](const auto& folder) { bench_engine(folder, count, 1024, 32); });
  run([&](const auto& folder) { bench_engine(folder, count / 20, 150'000, 32); });
  run([&](const auto& folder) { bench_http(folder, count, 1024); });
  run([&](const auto& folder) { bench_http(folder, count / 20, 150'000); });
  run([&](const auto& folder) { bench_large(folder, mib); });
  return 0;
}
