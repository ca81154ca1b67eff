// The S3 client: one request operations (s3_client.cc) and transfers of files (s3_transfer.cc).
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "objects/internal/s3_transport.h"
#include "objects/object_store.h"

namespace atelier::objects::internal {

class S3Client final : public ObjectStore {
 public:
  S3Client(const S3Endpoint& endpoint, const S3ClientOptions& options)
      : transport_(endpoint, options) {}

  Result<void> create_bucket(const std::string& bucket) override;
  Result<void> head_bucket(const std::string& bucket) override;
  Result<void> delete_bucket(const std::string& bucket) override;
  Result<std::vector<std::string>> list_buckets() override;
  Result<ObjectInfo> head(const std::string& bucket, const std::string& key) override;
  Result<ObjectInfo> get(const std::string& bucket, const std::string& key,
                         const GetOptions& options, const Sink& sink) override;
  Result<std::string> get_bytes(const std::string& bucket, const std::string& key,
                                std::size_t max_bytes) override;
  Result<ObjectInfo> put(const std::string& bucket, const std::string& key, std::string_view bytes,
                         const PutOptions& options) override;
  Result<ObjectInfo> put_file(const std::string& bucket, const std::string& key,
                              const std::filesystem::path& path, const PutOptions& options,
                              const Progress& progress) override;
  Result<void> remove(const std::string& bucket, const std::string& key) override;
  Result<void> remove_many(const std::string& bucket,
                           const std::vector<std::string>& keys) override;
  Result<void> copy(const std::string& bucket, const std::string& key, const std::string& to_bucket,
                    const std::string& to_key) override;
  Result<std::vector<bool>> check_readable(const std::string& bucket,
                                           const std::vector<std::string>& keys) override;
  Result<ListPage> list(const std::string& bucket, const ListOptions& options) override;
  Result<void> download_many(const std::string& bucket, std::vector<Download> items,
                             const Progress& progress) override;
  Result<void> upload_many(const std::string& bucket, std::vector<Upload> items,
                           const Progress& progress) override;

 private:
  // The bytes of an object or a part: in memory, or in an open file.
  struct Source {
    std::string_view bytes{};
    int fd = -1;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  Result<http::ClientResponse> put_source(S3Call call, const Source& source);
  Result<ObjectInfo> put_whole(const std::string& bucket, const std::string& key,
                               const Source& source, const PutOptions& options);
  Result<ObjectInfo> put_confirmed(const std::string& bucket, const std::string& key, int fd,
                                   std::uint64_t size, const PutOptions& options,
                                   const Progress& progress);
  Result<ObjectInfo> put_parts(const std::string& bucket, const std::string& key, int fd,
                               std::uint64_t size, const PutOptions& options,
                               const Progress& progress);
  Result<std::vector<std::string>> upload_parts(const S3Call& upload, int fd, std::uint64_t size,
                                                const Progress& progress);
  Result<ObjectInfo> complete(const S3Call& upload, const std::vector<std::string>& etags,
                              std::uint64_t size, const PutOptions& options);
  // `streams`: how many ranges of a large object at once.
  Result<void> download(const std::string& bucket, const Download& item, std::size_t streams);
  Result<void> download_small(const std::string& bucket, const Download& item, int fd);
  Result<void> download_large(const std::string& bucket, const Download& item, int fd);
  // In ranges, whose CRCs make up that of the object, which `expected` is.
  Result<void> download_ranges(const std::string& bucket, const Download& item, int fd,
                               const Checksum& expected, std::size_t streams);
  // The CRC of the whole, when the server keeps one; with the ETag that it belongs to.
  Result<std::optional<Checksum>> whole_crc(const std::string& bucket, Download& item);

  S3Transport transport_;
};

// Reads a slice of a file piece by piece.
Result<void> read_slice(int fd, std::uint64_t offset, std::uint64_t length, const Sink& sink);

}  // namespace atelier::objects::internal
