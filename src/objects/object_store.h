// An object store as its clients see it: S3's operations as values and Results. The one real
// implementation is the S3 client (objects/s3_client.h), for the embedded server and foreign ones
// alike.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace atelier::objects {

// "s3://bucket/key": the key may be empty, and is kept byte for byte.
struct Location {
  std::string bucket{};
  std::string key{};
  [[nodiscard]] std::string uri() const { return "s3://" + bucket + "/" + key; }
};
Result<Location> parse_s3_uri(std::string_view uri);

struct ObjectInfo {
  std::string key{};
  std::uint64_t size = 0;
  std::string etag{};  // without quotes
  Time last_modified{};
  std::string content_type{};  // empty in listings
  std::map<std::string, std::string>
      metadata{};  // x-amz-meta-*, names lower-case; empty in listings
};

struct Range {
  std::uint64_t first = 0;
  std::optional<std::uint64_t> last{};  // inclusive
};

struct GetOptions {
  std::optional<Range> range{};
  std::string if_match{};  // an ETag; another one is kFailedPrecondition
};

struct PutOptions {
  std::string content_type{};
  std::map<std::string, std::string> metadata{};
  bool if_none_match = false;  // kFailedPrecondition when the key exists
  // For put_file: called when the last byte of the file was read, before the object becomes
  // visible; its Error ends the put, and the key keeps what it had. So the caller can make sure
  // that the file did not change on the way.
  std::function<Result<void>()> before_visible{};
};

struct ListOptions {
  std::string prefix{};
  std::string delimiter{};
  std::string start_after{};
  std::string continuation_token{};
  unsigned max_keys = 1000;
};

struct ListPage {
  std::vector<ObjectInfo> objects{};
  std::vector<std::string> common_prefixes{};
  std::string next_token{};  // empty on the last page
};

// Receives the bytes of a body in order.
using Sink = std::function<Result<void>(std::span<const std::byte>)>;
// Bytes done so far and in all; called from other threads.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct Download {
  std::string key{};
  std::uint64_t size = 0;        // as listed
  std::string etag{};            // as listed: another one on the way is kAborted
  std::filesystem::path path{};  // appears whole, by rename
};

struct Upload {
  std::string key{};
  std::filesystem::path path{};  // or bytes, when the path is empty
  std::string bytes{};
  PutOptions options{};
};

// Safe from many threads. Every call retries what may be retried, with jitter, and checks every
// body against its length and checksum: an error is an error, never an empty or short body.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  virtual Result<void> create_bucket(
      const std::string& bucket) = 0;  // one that is ours already is fine
  virtual Result<void> head_bucket(const std::string& bucket) = 0;
  virtual Result<void> delete_bucket(const std::string& bucket) = 0;
  virtual Result<std::vector<std::string>> list_buckets() = 0;

  virtual Result<ObjectInfo> head(const std::string& bucket, const std::string& key) = 0;
  virtual Result<ObjectInfo> get(const std::string& bucket, const std::string& key,
                                 const GetOptions& options, const Sink& sink) = 0;
  virtual Result<std::string> get_bytes(const std::string& bucket, const std::string& key,
                                        std::size_t max_bytes) = 0;
  virtual Result<ObjectInfo> put(const std::string& bucket, const std::string& key,
                                 std::string_view bytes, const PutOptions& options) = 0;
  // By multipart when the file is large; its parts in parallel.
  virtual Result<ObjectInfo> put_file(const std::string& bucket, const std::string& key,
                                      const std::filesystem::path& path, const PutOptions& options,
                                      const Progress& progress) = 0;
  virtual Result<void> remove(const std::string& bucket, const std::string& key) = 0;
  virtual Result<void> remove_many(const std::string& bucket,
                                   const std::vector<std::string>& keys) = 0;
  virtual Result<void> copy(const std::string& bucket, const std::string& key,
                            const std::string& to_bucket, const std::string& to_key) = 0;
  // For each key whether our own server would let the caller read it (s3:GetObject), in the order
  // of the keys: what lets a cache on the disk stand in for a GET. No other server knows the call.
  // A key that XML cannot hold counts as one that may not be read.
  virtual Result<std::vector<bool>> check_readable(const std::string& bucket,
                                                   const std::vector<std::string>& keys) = 0;
  virtual Result<ListPage> list(const std::string& bucket, const ListOptions& options) = 0;

  // Many small objects with many requests in flight; the first error ends it. `progress` counts
  // bytes.
  virtual Result<void> download_many(const std::string& bucket, std::vector<Download> items,
                                     const Progress& progress) = 0;
  virtual Result<void> upload_many(const std::string& bucket, std::vector<Upload> items,
                                   const Progress& progress) = 0;
};

}  // namespace atelier::objects
