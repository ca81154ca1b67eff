#include "objects/s3_client.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "objects/checksum.h"
#include "objects/internal/body_check.h"
#include "objects/internal/s3_client_impl.h"
#include "objects/internal/s3_replies.h"
#include "objects/internal/xml_writer.h"

namespace atelier::objects {

Result<Location> parse_s3_uri(std::string_view uri) {
  constexpr std::string_view kScheme = "s3://";
  if (!uri.starts_with(kScheme)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' is no S3 URI: it must start with s3://", uri)};
  }
  const std::string_view rest = uri.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  if (slash == 0) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' names no bucket: it must be s3://bucket/key", uri)};
  }
  return Location{std::string{rest.substr(0, slash)},
                  std::string{rest.substr(std::min(slash + 1, rest.size()))}};
}

std::unique_ptr<ObjectStore> make_s3_client(const S3Endpoint& endpoint,
                                            const S3ClientOptions& options) {
  return std::make_unique<internal::S3Client>(endpoint, options);
}

namespace internal {
namespace {

constexpr std::size_t kDeleteBatch = 1000;

std::string create_bucket_document(std::string_view region) {
  XmlWriter xml;
  xml.open_root("CreateBucketConfiguration");
  xml.element("LocationConstraint", region);
  xml.close("CreateBucketConfiguration");
  return std::move(xml).finish();
}

// XML 1.0 has no way to write these, not even by reference; Ceph's parser refuses them.
bool fits_xml(std::string_view key) {
  return std::all_of(key.begin(), key.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\t' || c == '\n' || c == '\r';
  });
}

}  // namespace

Result<void> S3Client::create_bucket(const std::string& bucket) {
  const std::string& region = transport_.endpoint().region;
  const std::string document = region == "us-east-1" ? "" : create_bucket_document(region);
  S3Call call{.method = "PUT", .bucket = bucket, .body = document};
  Result<http::ClientResponse> reply = transport_.send(call);
  // Servers with one region of another name (Ceph) want none named.
  if (!reply && reply.error().message.find("LocationConstraint") != std::string::npos) {
    call.body = {};
    reply = transport_.send(call);
  }
  if (reply || reply.error().message.find("BucketAlreadyOwnedByYou") != std::string::npos)
    return {};
  return reply.error();
}

Result<void> S3Client::head_bucket(const std::string& bucket) {
  TRY(transport_.send({.method = "HEAD", .bucket = bucket}));
  return {};
}

Result<void> S3Client::delete_bucket(const std::string& bucket) {
  bool repeated = false;
  const auto reply = transport_.send_exclusive({.method = "DELETE", .bucket = bucket}, repeated);
  if (reply || (repeated && reply.error().code == Code::kNotFound)) return {};
  return reply.error();
}

Result<std::vector<std::string>> S3Client::list_buckets() {
  return parse_bucket_list(TRY(transport_.send({.method = "GET"})).body);
}

Result<ObjectInfo> S3Client::head(const std::string& bucket, const std::string& key) {
  return object_info(
      key, TRY(transport_.send({.method = "HEAD", .bucket = bucket, .key = key})).headers);
}

namespace {

// A GET that goes on where it was cut off: one per get().
class Reading {
 public:
  Reading(S3Call call, const GetOptions& options, const Sink& sink)
      : call_(std::move(call)), options_(options), sink_(sink) {
    call_.headers.set("x-amz-checksum-mode", "ENABLED");
    call_.on_head = [this](int, const http::Headers& headers) { return on_head(headers); };
    call_.on_body = [this](std::span<const std::byte> bytes) { return on_body(bytes); };
  }

  Result<ObjectInfo> run(S3Transport& transport) {
    for (unsigned attempt = 1;; ++attempt) {
      ask();
      Result<http::ClientResponse> reply = transport.send_once(call_);
      if (reply) return finish(*reply);
      if (sink_failed_ || attempt >= transport.attempts()) return reply.error();
      if (reply.error().code == Code::kFailedPrecondition && done_ > 0) {
        return Error{Code::kAborted, call_.what() + ": the object was replaced while it was read"};
      }
      if (reply.error().retry == Retry::kNo) return reply.error();
      transport.pause(attempt);
    }
  }

 private:
  void ask() {
    const std::uint64_t first = (options_.range ? options_.range->first : 0) + done_;
    if (options_.range && options_.range->last) {
      call_.headers.set("Range", fmt::format("bytes={}-{}", first, *options_.range->last));
    } else if (first > 0) {
      call_.headers.set("Range", fmt::format("bytes={}-", first));
    }
    const std::string& pinned = info_ ? info_->etag : options_.if_match;
    if (!pinned.empty()) call_.headers.set("If-Match", "\"" + pinned + "\"");
  }

  Result<void> on_head(const http::Headers& headers) {
    if (check_) return {};
    info_ = TRY(object_info(call_.key, headers));
    std::uint64_t length = info_->size;
    const bool partial = headers.find("content-range").has_value();
    if (partial) length = TRY(partial_length(headers));
    check_.emplace(headers, length, !partial || length == info_->size);
    return {};
  }

  // Content-Range: bytes 0-9/100
  Result<std::uint64_t> partial_length(const http::Headers& headers) const {
    const std::uint64_t first = options_.range ? options_.range->first : 0;
    if (first >= info_->size)
      return Error{Code::kDataLoss, call_.what() + ": a range beyond the end was answered"};
    const std::uint64_t last = options_.range && options_.range->last
                                   ? std::min(*options_.range->last, info_->size - 1)
                                   : info_->size - 1;
    const std::string expected = fmt::format("bytes {}-{}/{}", first, last, info_->size);
    if (headers.find("content-range") != expected) {
      return Error{Code::kDataLoss, fmt::format("{}: the answer has '{}', not '{}'", call_.what(),
                                                *headers.find("content-range"), expected)};
    }
    return last - first + 1;
  }

  Result<void> on_body(std::span<const std::byte> bytes) {
    Result<void> taken = sink_(bytes);
    if (!taken) {
      sink_failed_ = true;
      return taken;
    }
    done_ += bytes.size();
    if (check_) check_->update(bytes);
    return {};
  }

  Result<ObjectInfo> finish(const http::ClientResponse& reply) {
    if (!check_) TRY(on_head(reply.headers));
    TRY(check_->finish(call_.what()));
    return *info_;
  }

  S3Call call_;
  const GetOptions& options_;
  const Sink& sink_;
  std::uint64_t done_ = 0;
  bool sink_failed_ = false;
  std::optional<ObjectInfo> info_;
  std::optional<BodyCheck> check_;
};

}  // namespace

Result<ObjectInfo> S3Client::get(const std::string& bucket, const std::string& key,
                                 const GetOptions& options, const Sink& sink) {
  Reading reading{{.method = "GET", .bucket = bucket, .key = key}, options, sink};
  return reading.run(transport_);
}

Result<std::string> S3Client::get_bytes(const std::string& bucket, const std::string& key,
                                        std::size_t max_bytes) {
  std::string bytes;
  TRY(get(bucket, key, {}, [&](std::span<const std::byte> piece) -> Result<void> {
    if (bytes.size() + piece.size() > max_bytes) {
      return Error{
          Code::kResourceExhausted,
          fmt::format("s3://{}/{} is larger than the limit of {} bytes", bucket, key, max_bytes)};
    }
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return {};
  }));
  return bytes;
}

Result<void> S3Client::remove(const std::string& bucket, const std::string& key) {
  TRY(transport_.send({.method = "DELETE", .bucket = bucket, .key = key}));
  return {};
}

Result<void> S3Client::remove_many(const std::string& bucket,
                                   const std::vector<std::string>& keys) {
  std::vector<std::string_view> batch;
  const auto flush = [&]() -> Result<void> {
    if (batch.empty()) return {};
    XmlWriter xml;
    xml.open_root("Delete");
    xml.element("Quiet", true);
    for (const std::string_view key : batch) {
      xml.open("Object");
      xml.element("Key", key);
      xml.close("Object");
    }
    xml.close("Delete");
    const std::string document = std::move(xml).finish();
    S3Call call{.method = "POST", .bucket = bucket, .query = {{"delete", ""}}, .body = document};
    call.headers.set("Content-Type", "application/xml");
    call.headers.set("Content-MD5", to_base64(digest(Digest::kMd5, document)));
    batch.clear();
    return parse_delete_result(TRY(transport_.send(call)).body);
  };
  for (const std::string& key : keys) {
    if (!fits_xml(key)) {
      TRY(remove(bucket, key));
      continue;
    }
    batch.push_back(key);
    if (batch.size() == kDeleteBatch) TRY(flush());
  }
  return flush();
}

Result<std::vector<bool>> S3Client::check_readable(const std::string& bucket,
                                                   const std::vector<std::string>& keys) {
  std::vector<bool> readable(keys.size(), false);
  for (std::size_t next = 0; next < keys.size();) {
    std::vector<std::size_t> asked;
    XmlWriter xml;
    xml.open_root("Delete");  // the same list of keys, asked about here
    for (; next < keys.size() && asked.size() < kDeleteBatch; ++next) {
      if (!fits_xml(keys[next])) continue;
      asked.push_back(next);
      xml.open("Object");
      xml.element("Key", keys[next]);
      xml.close("Object");
    }
    xml.close("Delete");
    if (asked.empty()) break;
    const std::string document = std::move(xml).finish();
    S3Call call{
        .method = "POST", .bucket = bucket, .query = {{"atelier-readable", ""}}, .body = document};
    call.headers.set("Content-Type", "application/xml");
    const http::ClientResponse reply = TRY(transport_.send(call));
    const std::string answer = TRY(parse_element(reply.body, "ReadableResult", "Readable"));
    if (answer.size() != asked.size()) {
      return Error{Code::kDataLoss, fmt::format("{} answers to whether {} keys may be read",
                                                answer.size(), asked.size())};
    }
    for (std::size_t i = 0; i < asked.size(); ++i) readable[asked[i]] = answer[i] == '1';
  }
  return readable;
}

Result<void> S3Client::copy(const std::string& bucket, const std::string& key,
                            const std::string& to_bucket, const std::string& to_key) {
  S3Call call{.method = "PUT", .bucket = to_bucket, .key = to_key};
  call.headers.set("x-amz-copy-source",
                   "/" + http::percent_encode(bucket) + "/" + http::percent_encode(key, true));
  for (unsigned attempt = 1;; ++attempt) {
    const http::ClientResponse reply = TRY(transport_.send(call));
    const Result<std::string> etag = parse_element(reply.body, "CopyObjectResult", "ETag");
    if (etag) return {};
    if (etag.error().retry == Retry::kNo || attempt >= transport_.attempts())
      return etag.error().within(call.what());
    transport_.pause(attempt);
  }
}

Result<ListPage> S3Client::list(const std::string& bucket, const ListOptions& options) {
  S3Call call{.method = "GET", .bucket = bucket};
  call.query = {
      {"encoding-type", "url"}, {"list-type", "2"}, {"max-keys", std::to_string(options.max_keys)}};
  if (!options.prefix.empty()) call.query.emplace_back("prefix", options.prefix);
  if (!options.delimiter.empty()) call.query.emplace_back("delimiter", options.delimiter);
  if (!options.start_after.empty()) call.query.emplace_back("start-after", options.start_after);
  if (!options.continuation_token.empty())
    call.query.emplace_back("continuation-token", options.continuation_token);
  std::sort(call.query.begin(), call.query.end());
  const http::ClientResponse reply = TRY(transport_.send(call));
  Result<ListPage> page = parse_list_page(reply.body);
  if (!page) return page.error().within("list s3://" + bucket + "/" + options.prefix);
  return page;
}

}  // namespace internal
}  // namespace atelier::objects
