// One request on its way through an operation of the embedded S3.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/time.h"
#include "http/message.h"
#include "http/sigv4.h"
#include "objects/internal/s3_error.h"
#include "objects/internal/s3_request.h"
#include "objects/internal/xml_writer.h"
#include "objects/local_store.h"

namespace atelier::objects::internal {

// An object's or a part's bytes as they come in, with the digests that they need.
class IncomingBody {
 public:
  IncomingBody(std::unique_ptr<PendingBody> body, ChecksumKind kind)
      : body_(std::move(body)), md5_(Digest::kMd5), checksum_(kind) {}
  Result<void> append(std::span<const std::byte> bytes) {
    md5_.update(bytes);
    checksum_.update(bytes);
    return body_->append(bytes);
  }
  // Each once, after the last byte.
  [[nodiscard]] std::string take_md5() { return md5_.finish(); }
  [[nodiscard]] Checksum take_checksum() {
    return {checksum_.kind(), false, to_base64(checksum_.finish())};
  }
  [[nodiscard]] std::unique_ptr<PendingBody> take_body() { return std::move(body_); }

 private:
  std::unique_ptr<PendingBody> body_;
  Hasher md5_;
  Checksummer checksum_;
};

struct Call {
  LocalStore& store;
  const Clock& clock;
  const std::string& region;
  S3Request request;
  http::Verified caller;

  std::string document{};                        // the body of operations that take XML
  std::unique_ptr<IncomingBody> incoming{};      // the body of those that take bytes
  std::optional<AnnouncedChecksum> announced{};  // for either
  std::string md5{};                             // raw, of `incoming`, once it is whole
  std::optional<Checksum> checksum{};            // of `incoming`, once it is whole
  std::optional<UploadRecord> upload{};          // of UploadPart and its like
  unsigned part_number = 0;                      // likewise
};

using CallResult = Result<http::Response>;

enum class Input { kNone, kDocument, kBytes };

struct Operation {
  std::string_view name;  // as the API Reference has it
  std::string_view method;
  enum class Level { kService, kBucket, kObject } level;
  std::string_view parameter;  // the query parameter that chooses it; "" for the plain one
  Input input;
  CallResult (*run)(Call&);                  // null: not implemented
  Result<void> (*prepare)(Call&) = nullptr;  // before the body is read
};

// The operation that a request asks for; MethodNotAllowed when there is none.
Result<const Operation*> find_operation(const S3Request& request);

// s3_buckets.cc
CallResult list_buckets(Call& call);
CallResult create_bucket(Call& call);
CallResult head_bucket(Call& call);
CallResult delete_bucket(Call& call);
CallResult get_bucket_location(Call& call);
// s3_settings.cc
CallResult get_bucket_setting(Call& call);
CallResult put_bucket_setting(Call& call);
CallResult delete_bucket_setting(Call& call);
CallResult get_acl(Call& call);  // of buckets and objects
CallResult put_acl(Call& call);
CallResult get_object_lock(Call& call);  // GetObjectRetention and GetObjectLegalHold
// s3_listing.cc
CallResult list_objects_v1(Call& call);
CallResult list_objects_v2(Call& call);
CallResult list_object_versions(Call& call);
CallResult list_multipart_uploads(Call& call);
CallResult list_parts(Call& call);
// s3_objects.cc
CallResult get_object(Call& call);  // and HEAD
Result<void> prepare_put(Call& call);
Result<std::uint64_t> announced_length(const S3Request& request);
ChecksumKind checksum_kind_of(const Call& call);
CallResult put_object(Call& call);  // and CopyObject
CallResult delete_object(Call& call);
CallResult delete_objects(Call& call);
CallResult check_readable(Call& call);
CallResult get_object_tagging(Call& call);
CallResult put_object_tagging(Call& call);
CallResult delete_object_tagging(Call& call);
CallResult get_object_attributes(Call& call);
// s3_copy.cc
CallResult copy_object(Call& call);
CallResult upload_part_copy(Call& call);
// s3_multipart.cc
CallResult create_multipart_upload(Call& call);
Result<void> prepare_part(Call& call);
CallResult upload_part(Call& call);  // and UploadPartCopy
CallResult complete_multipart_upload(Call& call);
CallResult abort_multipart_upload(Call& call);

// Shared by the operations.
http::Response xml_response(XmlWriter&& xml);
http::Response empty_response(int status);
std::string quote_etag(std::string_view etag);
std::string object_path(const S3Request& request);  // "bucket/key", encoded
void add_checksum(http::Headers& headers, const std::optional<Checksum>& checksum);
void add_encryption(http::Headers& headers, const StoredHeaders& stored);
void write_owner(XmlWriter& xml, const Call& call, std::string_view element);
Result<void> refuse_version(const S3Request& request);
CallResult tagging_response(const std::string& tags);

// s3_documents.cc: the documents that clients send, bounded.
struct DeleteRequest {
  std::vector<Removal> removals{};
  bool quiet = false;
};
Result<DeleteRequest> parse_delete(std::string_view xml);
Result<std::vector<CompletedPart>> parse_complete(std::string_view xml);
Result<std::string> parse_create_bucket(std::string_view xml);  // the location constraint
// As stored: "a=1&b=2". An object can have 10, a bucket 50.
Result<std::string> parse_tagging(std::string_view xml, std::size_t most);

}  // namespace atelier::objects::internal
