// Bodies on their way out of and into files.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "base/hash.h"
#include "base/id.h"
#include "base/parallel.h"
#include "objects/checksum.h"
#include "objects/internal/body_check.h"
#include "objects/internal/file_ranges.h"
#include "objects/internal/s3_client_impl.h"
#include "objects/internal/s3_replies.h"
#include "objects/internal/xml_writer.h"

namespace atelier::objects::internal {
namespace fs = std::filesystem;
namespace {

// Up to this size a body is collected in memory, checked and written in one go by the thread that
// asked for it; larger ones go to their file as they come.
constexpr std::uint64_t kSmallBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kConfirmedBytes = std::uint64_t{1} << 20;
constexpr std::size_t kMaxParts = 10'000;
constexpr std::size_t kPartThreads = 4;
constexpr std::uint64_t kRangeBytes = std::uint64_t{8} << 20;
constexpr std::size_t kRangeStreams = 8;

void add_options(http::Headers& headers, const PutOptions& options) {
  if (!options.content_type.empty()) headers.set("Content-Type", options.content_type);
  for (const auto& [name, value] : options.metadata) headers.set("x-amz-meta-" + name, value);
}

}  // namespace

Result<void> read_slice(int fd, std::uint64_t offset, std::uint64_t length, const Sink& sink) {
  std::vector<std::byte> piece(std::min<std::uint64_t>(length, std::uint64_t{1} << 18));
  while (length > 0) {
    const std::size_t want = std::min<std::uint64_t>(piece.size(), length);
    const ssize_t got = pread(fd, piece.data(), want, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_from_errno("read", errno);
    if (got == 0) return Error{Code::kAborted, "the file became shorter while it was read"};
    TRY(sink(std::span{piece}.first(static_cast<std::size_t>(got))));
    offset += static_cast<std::uint64_t>(got);
    length -= static_cast<std::uint64_t>(got);
  }
  return {};
}

// Puts an object or a part, and checks that what the server says it got is what was sent.
Result<http::ClientResponse> S3Client::put_source(S3Call call, const Source& source) {
  const auto each_piece = [&](const Sink& sink) -> Result<void> {
    if (source.fd >= 0) return read_slice(source.fd, source.offset, source.length, sink);
    return sink(std::as_bytes(std::span{source.bytes.data(), source.bytes.size()}));
  };
  Checksummer summer{ChecksumKind::kCrc64Nvme};
  TRY(each_piece([&](std::span<const std::byte> piece) -> Result<void> {
    summer.update(piece);
    return {};
  }));
  const std::string checksum = to_base64(summer.finish());
  const std::string header = checksum_header(ChecksumKind::kCrc64Nvme);
  call.headers.set(header, checksum);
  call.headers.set("x-amz-sdk-checksum-algorithm", "CRC64NVME");
  call.body = source.bytes;
  call.body_fd = source.fd;
  call.body_offset = source.offset;
  call.body_length = source.length;
  // Whether an answer is about these bytes; nothing when it does not say.
  const auto agrees = [&](const http::ClientResponse& reply) -> Result<std::optional<bool>> {
    const auto echoed = reply.headers.find(header);
    if (echoed) return std::optional{*echoed == checksum};
    const std::string etag = unquote_etag(reply.headers.find("etag").value_or(""));
    if (!is_md5_etag(etag, reply.headers)) return std::optional<bool>{};
    // A server that knows no checksums (Ceph): its ETag is the proof.
    Hasher md5{Digest::kMd5};
    TRY(each_piece([&](std::span<const std::byte> piece) -> Result<void> {
      md5.update(piece);
      return {};
    }));
    return std::optional{to_hex(md5.finish()) == etag};
  };
  for (unsigned attempt = 1;; ++attempt) {
    bool repeated = false;
    Result<http::ClientResponse> reply = call.headers.find("If-None-Match")
                                             ? transport_.send_exclusive(call, repeated)
                                             : transport_.send(call);
    if (!reply && repeated && reply.error().code == Code::kFailedPrecondition) {
      // If-None-Match refuses what is there: these bytes, if the try before has put them.
      S3Call look{.method = "HEAD", .bucket = call.bucket, .key = call.key};
      look.headers.set("x-amz-checksum-mode", "ENABLED");
      Result<http::ClientResponse> there = transport_.send(look);
      if (there && TRY(agrees(*there)) == true) return there;
    }
    if (!reply || TRY(agrees(*reply)).value_or(true)) return reply;
    if (attempt >= transport_.attempts()) {
      return Error{Code::kDataLoss, call.what() + ": the server got other bytes than were sent"};
    }
    transport_.pause(attempt);
  }
}

Result<ObjectInfo> S3Client::put_whole(const std::string& bucket, const std::string& key,
                                       const Source& source, const PutOptions& options) {
  S3Call call{.method = "PUT", .bucket = bucket, .key = key};
  add_options(call.headers, options);
  if (options.if_none_match) call.headers.set("If-None-Match", "*");
  const http::ClientResponse reply = TRY(put_source(std::move(call), source));
  ObjectInfo info = TRY(object_info(key, reply.headers));
  info.size = source.fd >= 0 ? source.length : source.bytes.size();
  info.content_type = options.content_type;
  info.metadata = options.metadata;
  if (const auto date = reply.headers.find("date")) {
    if (const Result<Time> time = parse_http_date(*date)) info.last_modified = *time;
  }
  return info;
}

Result<ObjectInfo> S3Client::put(const std::string& bucket, const std::string& key,
                                 std::string_view bytes, const PutOptions& options) {
  return put_whole(bucket, key, {.bytes = bytes}, options);
}

Result<ObjectInfo> S3Client::put_file(const std::string& bucket, const std::string& key,
                                      const fs::path& path, const PutOptions& options,
                                      const Progress& progress) {
  const UniqueFd fd = TRY(open_file(path, O_RDONLY));
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return error_from_errno("stat '" + path.string() + "'", errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{Code::kInvalidArgument, fmt::format("'{}' is no regular file", path.string())};
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (options.before_visible) return put_confirmed(bucket, key, fd.get(), size, options, progress);
  if (size > 2 * transport_.options().part_bytes)
    return put_parts(bucket, key, fd.get(), size, options, progress);
  Result<ObjectInfo> info = size == 0
                                ? put_whole(bucket, key, {}, options)
                                : put_whole(bucket, key, {.fd = fd.get(), .length = size}, options);
  if (info && progress) progress(size, size);
  return info;
}

// A small file is read before it is confirmed; of a larger one only the end of a multipart upload
// can be held back.
Result<ObjectInfo> S3Client::put_confirmed(const std::string& bucket, const std::string& key,
                                           int fd, std::uint64_t size, const PutOptions& options,
                                           const Progress& progress) {
  if (size > kConfirmedBytes) return put_parts(bucket, key, fd, size, options, progress);
  std::string bytes;
  bytes.reserve(size);
  TRY(read_slice(fd, 0, size, [&](std::span<const std::byte> piece) -> Result<void> {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return {};
  }));
  TRY(options.before_visible());
  Result<ObjectInfo> info = put_whole(bucket, key, {.bytes = bytes}, options);
  if (info && progress) progress(size, size);
  return info;
}

Result<ObjectInfo> S3Client::put_parts(const std::string& bucket, const std::string& key, int fd,
                                       std::uint64_t size, const PutOptions& options,
                                       const Progress& progress) {
  S3Call create{.method = "POST", .bucket = bucket, .key = key, .query = {{"uploads", ""}}};
  add_options(create.headers, options);
  create.headers.set("x-amz-checksum-algorithm", "CRC64NVME");
  create.headers.set("x-amz-checksum-type", "FULL_OBJECT");
  const http::ClientResponse created = TRY(transport_.send(create));
  const std::string id =
      TRY(parse_element(created.body, "InitiateMultipartUploadResult", "UploadId"));
  const S3Call upload{.bucket = bucket, .key = key, .query = {{"uploadId", id}}};

  Result<ObjectInfo> outcome = Error{};
  const Result<std::vector<std::string>> etags = upload_parts(upload, fd, size, progress);
  const Result<void> confirmed =
      etags && options.before_visible ? options.before_visible() : Result<void>{};
  if (!etags) {
    outcome = etags.error();
  } else if (!confirmed) {
    outcome = confirmed.error();
  } else {
    outcome = complete(upload, *etags, size, options);
  }
  if (!outcome) {
    S3Call abort = upload;
    abort.method = "DELETE";
    abort.cleans_up = outcome.error().code == Code::kCancelled;
    ignore_error(abort.cleans_up ? transport_.send_once(abort) : transport_.send(abort),
                 "the upload failed already; its parts cost space, not truth");
  }
  return outcome;
}

Result<std::vector<std::string>> S3Client::upload_parts(const S3Call& upload, int fd,
                                                        std::uint64_t size,
                                                        const Progress& progress) {
  const std::uint64_t part =
      std::max(transport_.options().part_bytes, (size + kMaxParts - 1) / kMaxParts);
  const std::size_t count = static_cast<std::size_t>((size + part - 1) / part);
  std::vector<std::string> etags(count);
  std::atomic<std::uint64_t> done = 0;
  TRY(for_each_parallel(count, kPartThreads, [&](std::size_t i) -> Result<void> {
    const std::uint64_t offset = i * part;
    const std::uint64_t length = std::min(part, size - offset);
    S3Call call = upload;
    call.method = "PUT";
    call.query.insert(call.query.begin(), {"partNumber", std::to_string(i + 1)});
    const http::ClientResponse reply =
        TRY(put_source(std::move(call), {.fd = fd, .offset = offset, .length = length}));
    etags[i] = unquote_etag(reply.headers.find("etag").value_or(""));
    if (progress) progress(done += length, size);
    return {};
  }));
  return etags;
}

namespace {

// As S3 makes it of the MD5s of the parts; of other ETags something that no object has.
std::string etag_of_parts(const std::vector<std::string>& etags) {
  Hasher all{Digest::kMd5};
  for (const std::string& etag : etags) all.update(from_hex(etag).value_or(""));
  return fmt::format("{}-{}", to_hex(all.finish()), etags.size());
}

}  // namespace

Result<ObjectInfo> S3Client::complete(const S3Call& upload, const std::vector<std::string>& etags,
                                      std::uint64_t size, const PutOptions& options) {
  XmlWriter xml;
  xml.open_root("CompleteMultipartUpload");
  for (std::size_t i = 0; i < etags.size(); ++i) {
    xml.open("Part");
    xml.element("PartNumber", std::uint64_t{i + 1});
    xml.element("ETag", "\"" + etags[i] + "\"");
    xml.close("Part");
  }
  xml.close("CompleteMultipartUpload");
  const std::string document = std::move(xml).finish();
  S3Call call = upload;
  call.method = "POST";
  call.body = document;
  call.headers.set("Content-Type", "application/xml");
  if (options.if_none_match) call.headers.set("If-None-Match", "*");
  for (unsigned attempt = 1;; ++attempt) {
    bool repeated = false;
    const Result<http::ClientResponse> reply = transport_.send_exclusive(call, repeated);
    if (!reply) {
      // No such upload any more, or something is there: this very object, if the try before did it.
      if (!repeated && attempt == 1) return reply.error();
      const Result<ObjectInfo> there = head(upload.bucket, upload.key);
      if (there && there->size == size && there->etag == etag_of_parts(etags)) return there;
      return reply.error();
    }
    // S3 can say 200 before it knows, and send an Error afterwards.
    const Result<std::string> etag =
        parse_element(reply->body, "CompleteMultipartUploadResult", "ETag");
    if (etag) break;
    if (etag.error().retry == Retry::kNo || attempt >= transport_.attempts())
      return etag.error().within(call.what());
    transport_.pause(attempt);
  }
  Result<ObjectInfo> info = head(upload.bucket, upload.key);
  if (!info && info.error().code == Code::kPermissionDenied) {
    // A key that may write and not read, as a job's has for its outputs: each part was checked.
    ObjectInfo written;
    written.key = upload.key;
    written.size = size;
    return written;
  }
  if (!info || info->size == size) return info;
  return Error{Code::kDataLoss, fmt::format("{}: the object has {} bytes, {} were sent",
                                            call.what(), info->size, size)};
}

namespace {

// A file under a temporary name until it is whole.
class FileInTheMaking {
 public:
  static Result<FileInTheMaking> create(const fs::path& path) {
    fs::path temporary = path.parent_path() / ("." + random_id(8) + ".part");
    UniqueFd fd = TRY(open_file(temporary, O_RDWR | O_CREAT | O_EXCL));
    // Who finds the file says by it whether somebody still writes: the lock ends with the process.
    static_cast<void>(flock(fd.get(), LOCK_EX | LOCK_NB));
    return FileInTheMaking{path, std::move(temporary), std::move(fd)};
  }
  FileInTheMaking(FileInTheMaking&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, {})),
        fd_(std::move(other.fd_)) {}
  FileInTheMaking& operator=(FileInTheMaking&&) = delete;
  ~FileInTheMaking() {
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }
  [[nodiscard]] int fd() const { return fd_.get(); }
  Result<void> appear() {
    if (rename(temporary_.c_str(), path_.c_str()) != 0) {
      return error_from_errno("rename to '" + path_.string() + "'", errno);
    }
    temporary_.clear();
    return {};
  }

 private:
  FileInTheMaking(fs::path path, fs::path temporary, UniqueFd fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}
  fs::path path_;
  fs::path temporary_;
  UniqueFd fd_;
};

Error changed_since_listed(const S3Call& call) {
  return Error{Code::kAborted,
               call.what() + ": the object is not the one that was listed any more"};
}

}  // namespace

Result<void> S3Client::download_small(const std::string& bucket, const Download& item, int fd) {
  S3Call call{.method = "GET", .bucket = bucket, .key = item.key};
  call.headers.set("x-amz-checksum-mode", "ENABLED");
  if (!item.etag.empty()) call.headers.set("If-Match", "\"" + item.etag + "\"");
  for (unsigned attempt = 1;; ++attempt) {
    Result<http::ClientResponse> reply = transport_.send(call);
    if (!reply) {
      if (reply.error().code == Code::kFailedPrecondition) return changed_since_listed(call);
      return reply.error();
    }
    BodyCheck check{reply->headers, TRY(object_info(item.key, reply->headers)).size, true};
    check.update(reply->body);
    const Result<void> whole = check.finish(call.what());
    if (whole) return write_all(fd, reply->body);
    if (attempt >= transport_.attempts()) return whole;
    transport_.pause(attempt);
  }
}

Result<void> S3Client::download_large(const std::string& bucket, const Download& item, int fd) {
  const S3Call call{.method = "GET", .bucket = bucket, .key = item.key};
  for (unsigned attempt = 1;; ++attempt) {
    internal::GatheredWriter file(fd, 0);
    const Result<ObjectInfo> info =
        get(bucket, item.key, {.range = {}, .if_match = item.etag},
            [&](std::span<const std::byte> piece) { return file.write(piece); });
    if (info) return info->size == item.size ? file.flush() : changed_since_listed(call);
    if (info.error().code == Code::kFailedPrecondition) return changed_since_listed(call);
    // get() goes on where a body was cut off; wrong bytes have to come again from the start.
    if (info.error().code != Code::kDataLoss || attempt >= transport_.attempts()) {
      return info.error();
    }
    transport_.pause(attempt);
  }
}

Result<std::optional<Checksum>> S3Client::whole_crc(const std::string& bucket, Download& item) {
  S3Call call{.method = "HEAD", .bucket = bucket, .key = item.key};
  call.headers.set("x-amz-checksum-mode", "ENABLED");
  if (!item.etag.empty()) call.headers.set("If-Match", "\"" + item.etag + "\"");
  const Result<http::ClientResponse> reply = transport_.send(call);
  if (!reply) {
    if (reply.error().code == Code::kFailedPrecondition) return changed_since_listed(call);
    return reply.error();
  }
  const ObjectInfo info = TRY(object_info(item.key, reply->headers));
  if (info.size != item.size) return changed_since_listed(call);
  item.etag = info.etag;
  for (const ChecksumKind kind : kChecksumKinds) {
    const auto value = reply->headers.find(checksum_header(kind));
    // "...-3" is a checksum of parts.
    if (!is_crc(kind) || !value || value->find('-') != std::string_view::npos) continue;
    return std::optional{Checksum{kind, false, std::string{*value}}};
  }
  return std::optional<Checksum>{};
}

Result<void> S3Client::download_ranges(const std::string& bucket, const Download& item, int fd,
                                       const Checksum& expected, std::size_t streams) {
  const S3Call call{.method = "GET", .bucket = bucket, .key = item.key};
  const std::size_t count = static_cast<std::size_t>((item.size + kRangeBytes - 1) / kRangeBytes);
  for (unsigned attempt = 1;; ++attempt) {
    std::vector<PartChecksum> sums(count);
    TRY(for_each_parallel(count, streams, [&](std::size_t i) -> Result<void> {
      const std::uint64_t first = i * kRangeBytes;
      const std::uint64_t length = std::min(kRangeBytes, item.size - first);
      Checksummer summer{expected.kind};
      internal::GatheredWriter file(fd, first);
      const GetOptions options{.range = Range{first, first + length - 1}, .if_match = item.etag};
      const Result<ObjectInfo> info =
          get(bucket, item.key, options, [&](std::span<const std::byte> piece) -> Result<void> {
            TRY(file.write(piece));
            summer.update(piece);
            return {};
          });
      if (!info) {
        if (info.error().code == Code::kFailedPrecondition) return changed_since_listed(call);
        return info.error();
      }
      sums[i] = {to_base64(summer.finish()), length};
      return file.flush();
    }));
    const Checksum whole = TRY(combine_checksums(expected.kind, false, sums));
    if (whole.value == expected.value) return {};
    if (attempt >= transport_.attempts()) {
      return Error{Code::kDataLoss,
                   fmt::format("{}: the {} of what came is {}, not {}", call.what(),
                               checksum_name(expected.kind), whole.value, expected.value)};
    }
    transport_.pause(attempt);
  }
}

Result<void> S3Client::download(const std::string& bucket, const Download& item,
                                std::size_t streams) {
  FileInTheMaking file = TRY(FileInTheMaking::create(item.path));
  if (item.size <= kSmallBytes) {
    TRY(download_small(bucket, item, file.fd()));
    return file.appear();
  }
  // One extent for what will be written piece by piece; a file system that cannot need not.
  static_cast<void>(posix_fallocate(file.fd(), 0, static_cast<off_t>(item.size)));
  Download pinned = item;
  std::optional<Checksum> crc;
  if (streams > 1 && item.size >= 2 * kRangeBytes) crc = TRY(whole_crc(bucket, pinned));
  if (crc) {
    TRY(download_ranges(bucket, pinned, file.fd(), *crc, streams));
  } else {
    TRY(download_large(bucket, item, file.fd()));
  }
  return file.appear();
}

Result<void> S3Client::download_many(const std::string& bucket, std::vector<Download> items,
                                     const Progress& progress) {
  std::uint64_t total = 0;
  std::set<fs::path> folders;
  for (const Download& item : items) {
    total += item.size;
    if (folders.insert(item.path.parent_path()).second) TRY(make_folders(item.path.parent_path()));
  }
  std::atomic<std::uint64_t> done = 0;
  // As many requests at once as there are connections, whether for many objects or for a few.
  const std::size_t streams = std::clamp<std::size_t>(
      transport_.options().max_connections / std::max<std::size_t>(items.size(), 1), 1,
      kRangeStreams);
  return for_each_parallel(items.size(), transport_.options().max_connections,
                           [&](std::size_t i) -> Result<void> {
                             TRY(download(bucket, items[i], streams));
                             if (progress) progress(done += items[i].size, total);
                             return {};
                           });
}

Result<void> S3Client::upload_many(const std::string& bucket, std::vector<Upload> items,
                                   const Progress& progress) {
  std::uint64_t total = 0;
  for (const Upload& item : items) {
    std::error_code failure;
    total += item.path.empty() ? item.bytes.size() : fs::file_size(item.path, failure);
    if (failure) return error_from_errno("stat '" + item.path.string() + "'", failure.value());
  }
  std::atomic<std::uint64_t> done = 0;
  return for_each_parallel(
      items.size(), transport_.options().max_connections, [&](std::size_t i) -> Result<void> {
        const Upload& item = items[i];
        const ObjectInfo info = item.path.empty()
                                    ? TRY(put(bucket, item.key, item.bytes, item.options))
                                    : TRY(put_file(bucket, item.key, item.path, item.options, {}));
        if (progress) progress(done += info.size, total);
        return {};
      });
}

}  // namespace atelier::objects::internal
