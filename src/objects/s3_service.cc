#include "objects/s3_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/byte_budget.h"
#include "base/id.h"
#include "objects/internal/s3_access.h"
#include "objects/internal/s3_call.h"
#include "objects/internal/s3_cors.h"
#include "objects/internal/upload_sweeper.h"

namespace atelier::objects {
namespace internal {
namespace {

constexpr std::size_t kMaxDocument = std::size_t{8} << 20;
// Of all requests together.
constexpr std::uint64_t kMaxDocuments = std::uint64_t{128} << 20;

using Level = Operation::Level;
// GET, PUT or DELETE of a bucket's setting.
constexpr Operation setting(std::string_view name, std::string_view method,
                            std::string_view parameter) {
  if (method == "PUT") {
    return {name, method, Level::kBucket, parameter, Input::kDocument, put_bucket_setting};
  }
  return {name,      method,       Level::kBucket,
          parameter, Input::kNone, method == "GET" ? get_bucket_setting : delete_bucket_setting};
}

// Found by method, level and the first parameter that matches. Without `run`: known, not served.
constexpr std::array kOperations = {
    Operation{"ListBuckets", "GET", Level::kService, "", Input::kNone, list_buckets},

    Operation{"ListObjectsV2", "GET", Level::kBucket, "list-type", Input::kNone, list_objects_v2},
    Operation{"GetBucketLocation", "GET", Level::kBucket, "location", Input::kNone,
              get_bucket_location},
    Operation{"ListObjectVersions", "GET", Level::kBucket, "versions", Input::kNone,
              list_object_versions},
    Operation{"ListMultipartUploads", "GET", Level::kBucket, "uploads", Input::kNone,
              list_multipart_uploads},
    setting("GetBucketAccelerateConfiguration", "GET", "accelerate"),
    setting("GetBucketCors", "GET", "cors"),
    setting("GetBucketEncryption", "GET", "encryption"),
    setting("GetBucketLifecycleConfiguration", "GET", "lifecycle"),
    setting("GetBucketLogging", "GET", "logging"),
    setting("GetBucketNotificationConfiguration", "GET", "notification"),
    setting("GetObjectLockConfiguration", "GET", "object-lock"),
    setting("GetBucketOwnershipControls", "GET", "ownershipControls"),
    setting("GetBucketPolicy", "GET", "policy"),
    setting("GetBucketPolicyStatus", "GET", "policyStatus"),
    setting("GetPublicAccessBlock", "GET", "publicAccessBlock"),
    setting("GetBucketReplication", "GET", "replication"),
    setting("GetBucketRequestPayment", "GET", "requestPayment"),
    setting("GetBucketTagging", "GET", "tagging"),
    setting("GetBucketVersioning", "GET", "versioning"),
    setting("GetBucketWebsite", "GET", "website"),
    setting("PutBucketAccelerateConfiguration", "PUT", "accelerate"),
    setting("PutBucketCors", "PUT", "cors"),
    setting("PutBucketEncryption", "PUT", "encryption"),
    setting("PutBucketLifecycleConfiguration", "PUT", "lifecycle"),
    setting("PutBucketLogging", "PUT", "logging"),
    setting("PutBucketNotificationConfiguration", "PUT", "notification"),
    setting("PutObjectLockConfiguration", "PUT", "object-lock"),
    setting("PutBucketOwnershipControls", "PUT", "ownershipControls"),
    setting("PutBucketPolicy", "PUT", "policy"),
    setting("PutPublicAccessBlock", "PUT", "publicAccessBlock"),
    setting("PutBucketReplication", "PUT", "replication"),
    setting("PutBucketRequestPayment", "PUT", "requestPayment"),
    setting("PutBucketTagging", "PUT", "tagging"),
    setting("PutBucketVersioning", "PUT", "versioning"),
    setting("PutBucketWebsite", "PUT", "website"),
    setting("DeleteBucketCors", "DELETE", "cors"),
    setting("DeleteBucketEncryption", "DELETE", "encryption"),
    setting("DeleteBucketLifecycle", "DELETE", "lifecycle"),
    setting("DeleteBucketOwnershipControls", "DELETE", "ownershipControls"),
    setting("DeleteBucketPolicy", "DELETE", "policy"),
    setting("DeletePublicAccessBlock", "DELETE", "publicAccessBlock"),
    setting("DeleteBucketReplication", "DELETE", "replication"),
    setting("DeleteBucketTagging", "DELETE", "tagging"),
    setting("DeleteBucketWebsite", "DELETE", "website"),
    Operation{"GetBucketAcl", "GET", Level::kBucket, "acl", Input::kNone, get_acl},
    Operation{"PutBucketAcl", "PUT", Level::kBucket, "acl", Input::kDocument, put_acl},
    Operation{"ListObjects", "GET", Level::kBucket, "", Input::kNone, list_objects_v1},
    Operation{"HeadBucket", "HEAD", Level::kBucket, "", Input::kNone, head_bucket},
    Operation{"CreateBucket", "PUT", Level::kBucket, "", Input::kDocument, create_bucket},
    Operation{"DeleteBucket", "DELETE", Level::kBucket, "", Input::kNone, delete_bucket},
    Operation{"DeleteObjects", "POST", Level::kBucket, "delete", Input::kDocument, delete_objects},
    // Not S3's: ObjectStore::check_readable.
    Operation{"CheckReadable", "POST", Level::kBucket, "atelier-readable", Input::kDocument,
              check_readable},
    Operation{"PostObject", "POST", Level::kBucket, "", Input::kNone, nullptr},

    Operation{"ListParts", "GET", Level::kObject, "uploadId", Input::kNone, list_parts},
    Operation{"GetObjectTagging", "GET", Level::kObject, "tagging", Input::kNone,
              get_object_tagging},
    Operation{"GetObjectAttributes", "GET", Level::kObject, "attributes", Input::kNone,
              get_object_attributes},
    Operation{"GetObjectAcl", "GET", Level::kObject, "acl", Input::kNone, get_acl},
    Operation{"PutObjectAcl", "PUT", Level::kObject, "acl", Input::kDocument, put_acl},
    Operation{"GetObjectRetention", "GET", Level::kObject, "retention", Input::kNone,
              get_object_lock},
    Operation{"GetObjectLegalHold", "GET", Level::kObject, "legal-hold", Input::kNone,
              get_object_lock},
    Operation{"GetObject", "GET", Level::kObject, "", Input::kNone, get_object},
    Operation{"HeadObject", "HEAD", Level::kObject, "", Input::kNone, get_object},
    Operation{"UploadPart", "PUT", Level::kObject, "uploadId", Input::kBytes, upload_part,
              prepare_part},
    Operation{"PutObjectTagging", "PUT", Level::kObject, "tagging", Input::kDocument,
              put_object_tagging},
    Operation{"PutObject", "PUT", Level::kObject, "", Input::kBytes, put_object, prepare_put},
    Operation{"AbortMultipartUpload", "DELETE", Level::kObject, "uploadId", Input::kNone,
              abort_multipart_upload},
    Operation{"DeleteObjectTagging", "DELETE", Level::kObject, "tagging", Input::kNone,
              delete_object_tagging},
    Operation{"DeleteObject", "DELETE", Level::kObject, "", Input::kNone, delete_object},
    Operation{"CreateMultipartUpload", "POST", Level::kObject, "uploads", Input::kNone,
              create_multipart_upload},
    Operation{"CompleteMultipartUpload", "POST", Level::kObject, "uploadId", Input::kDocument,
              complete_multipart_upload},
};

// Sub-resources of S3 that this server does not have at all, or not for the method and the level of
// the request.
constexpr std::array<std::string_view, 39> kSubResources = {"abac",
                                                            "accelerate",
                                                            "acl",
                                                            "analytics",
                                                            "annotation",
                                                            "attributes",
                                                            "cors",
                                                            "delete",
                                                            "encryption",
                                                            "intelligent-tiering",
                                                            "inventory",
                                                            "legal-hold",
                                                            "lifecycle",
                                                            "location",
                                                            "logging",
                                                            "metadataConfiguration",
                                                            "metadataInventoryTable",
                                                            "metadataJournalTable",
                                                            "metadataTable",
                                                            "metrics",
                                                            "notification",
                                                            "object-lock",
                                                            "ownershipControls",
                                                            "policy",
                                                            "policyStatus",
                                                            "publicAccessBlock",
                                                            "renameObject",
                                                            "replication",
                                                            "requestPayment",
                                                            "restore",
                                                            "retention",
                                                            "select",
                                                            "session",
                                                            "tagging",
                                                            "torrent",
                                                            "uploads",
                                                            "versioning",
                                                            "versions",
                                                            "website"};

Level level_of(const S3Request& request) {
  if (request.bucket.empty()) return Level::kService;
  return request.key.empty() ? Level::kBucket : Level::kObject;
}

Error not_implemented(const S3Request& request, std::string_view what) {
  return s3_error("NotImplemented", fmt::format("{} ({} {}) is not supported by this server", what,
                                                request.head.method, request.head.path()));
}

}  // namespace

Result<const Operation*> find_operation(const S3Request& request) {
  const Level level = level_of(request);
  const Operation* plain = nullptr;
  for (const Operation& operation : kOperations) {
    if (operation.method != request.head.method || operation.level != level) continue;
    if (operation.parameter.empty()) {
      plain = &operation;
    } else if (request.parameter(operation.parameter)) {
      return &operation;
    }
  }
  for (const std::string_view name : kSubResources) {
    if (request.parameter(name))
      return not_implemented(request, fmt::format("the sub-resource '{}'", name));
  }
  if (plain != nullptr && plain->run != nullptr) return plain;
  if (plain != nullptr) return not_implemented(request, plain->name);
  return s3_error(
      "MethodNotAllowed",
      fmt::format("the method {} is not allowed against this resource", request.head.method));
}

http::Response xml_response(XmlWriter&& xml) {
  http::Response response;
  response.headers.add("Content-Type", "application/xml");
  response.body = std::move(xml).finish();
  return response;
}

http::Response empty_response(int status) {
  http::Response response;
  response.status = status;
  response.body = std::string{};
  return response;
}

std::string quote_etag(std::string_view etag) { return fmt::format("\"{}\"", etag); }

std::string object_path(const S3Request& request) {
  return request.bucket + "/" + http::percent_encode(request.key, true);
}

void add_checksum(http::Headers& headers, const std::optional<Checksum>& checksum) {
  if (!checksum) return;
  headers.add(checksum_header(checksum->kind), checksum->value);
  headers.add("x-amz-checksum-type", checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
}

void add_encryption(http::Headers& headers, const StoredHeaders& stored) {
  for (const auto& [name, value] : stored) {
    if (name.starts_with("x-amz-server-side-encryption") && !name.ends_with("-context")) {
      headers.add(name, value);
    }
  }
}

void write_owner(XmlWriter& xml, const Call& call, std::string_view element) {
  xml.open(element);
  xml.element("ID", call.caller.principal.account);
  xml.element("DisplayName", call.caller.principal.account);
  xml.close(element);
}

Result<void> refuse_version(const S3Request& request) {
  const auto version = request.parameter("versionId");
  if (!version || *version == "null") return {};
  return s3_error("NoSuchVersion",
                  fmt::format("the version '{}' does not exist: versions are not kept", *version));
}

namespace {

class S3Exchange final : public http::Exchange {
 public:
  // `cors` and `documents` must outlive it.
  S3Exchange(Call call, const Operation& operation, CorsRules& cors, ByteBudget& documents)
      : call_(std::move(call)),
        operation_(operation),
        cors_(cors),
        kept_(documents),
        reader_(call_.caller, http::decoded_length(call_.request.head)) {
    Result<void> ready = prepare();
    if (!ready) error_ = ready.error();
  }

  [[nodiscard]] bool wants_body() const override {
    return !error_ && (call_.incoming != nullptr || operation_.input == Input::kDocument);
  }

  bool on_body(std::span<const std::byte> piece) override {
    if (error_) return false;
    Result<void> taken =
        reader_.feed(piece, [this](std::span<const std::byte> bytes) { return take(bytes); });
    if (!taken) error_ = taken.error();
    return !error_;
  }

  http::Response finish() override {
    CallResult result = error_ ? CallResult{*error_} : run();
    http::Response response =
        result ? *std::move(result)
               : error_response(to_s3_error(result.error()), call_.request.head.method,
                                call_.request.head.path(), call_.request.id);
    response.headers.set("x-amz-request-id", call_.request.id);
    add_cors(cors_, call_.request, response.headers);
    return response;
  }

 private:
  Result<void> prepare() {
    TRY(authorize(call_, operation_));
    const auto owner = call_.request.header("x-amz-expected-bucket-owner");
    if (owner && *owner != call_.caller.principal.account) {
      return s3_error("AccessDenied", fmt::format("the bucket belongs to {}, not to {}",
                                                  call_.caller.principal.account, *owner));
    }
    call_.announced = TRY(announced_checksum(call_.request));
    if (operation_.prepare != nullptr) TRY(operation_.prepare(call_));
    return {};
  }

  Result<void> take(std::span<const std::byte> bytes) {
    if (call_.incoming) return call_.incoming->append(bytes);
    if (call_.document.size() + bytes.size() > kMaxDocument) {
      return s3_error("MaxMessageLengthExceeded",
                      fmt::format("the document has more than {} bytes", kMaxDocument));
    }
    if (!kept_.grow(bytes.size())) {
      return s3_error("SlowDown",
                      "documents of other requests take all of the memory that there is for them: "
                      "try again");
    }
    call_.document.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }

  CallResult run() {
    if (wants_body()) {
      TRY(reader_.finish());
      TRY(check_body());
    }
    return operation_.run(call_);
  }

  // Compares what came in with what the client said about it.
  Result<void> check_body() {
    if (call_.incoming) {
      call_.md5 = call_.incoming->take_md5();
      call_.checksum = call_.incoming->take_checksum();
    } else {
      call_.md5 = digest(Digest::kMd5, call_.document);
      // The checksum of a completion is that of the object, and checked there.
      if (call_.announced && call_.request.parameter("uploadId")) call_.announced.reset();
      if (call_.announced) {
        call_.checksum = Checksum{call_.announced->kind, false,
                                  checksum_base64(call_.announced->kind, call_.document)};
      }
    }
    if (const auto header = call_.request.header("content-md5")) {
      const Result<std::string> raw = from_base64(*header);
      if (!raw || raw->size() != 16)
        return s3_error("InvalidDigest", "the Content-MD5 is not valid");
      if (*raw != call_.md5) {
        return s3_error("BadDigest", fmt::format("the MD5 of the body is {}, not {}",
                                                 to_base64(call_.md5), *header));
      }
    }
    return check_announced();
  }

  Result<void> check_announced() {
    if (!call_.announced) return {};
    std::optional<std::string> said = call_.announced->value;
    if (call_.announced->in_trailer) {
      const auto trailer = reader_.trailers().find(checksum_header(call_.announced->kind));
      if (!trailer)
        return s3_error("IncompleteBody", "the trailer that x-amz-trailer announced is missing");
      said = std::string{*trailer};
    }
    if (!said || *said == call_.checksum->value) return {};
    return s3_error("BadDigest", fmt::format("the {} of the body is {}, not {}",
                                             checksum_name(call_.announced->kind),
                                             call_.checksum->value, *said));
  }

  Call call_;
  const Operation& operation_;
  CorsRules& cors_;
  ByteBudget::Share kept_;
  http::PayloadReader reader_;
  std::optional<Error> error_;
};

class ServiceImpl final : public S3Service {
 public:
  ServiceImpl(std::unique_ptr<LocalStore> store, const Clock& clock, std::string region,
              const S3Options& options)
      : store_(std::move(store)),
        clock_(clock),
        region_(std::move(region)),
        sweeper_(*store_, clock_, options.abandoned_uploads, options.sweep_period) {}

  std::unique_ptr<http::Exchange> begin(const http::RequestHead& head,
                                        const http::Verified& caller) override {
    Result<S3Request> request = parse_request(head);
    if (!request) return http::answer(refuse(head, request.error()));
    const Result<const Operation*> operation = find_operation(*request);
    if (!operation) return http::answer(refuse(head, operation.error()));
    return std::make_unique<S3Exchange>(Call{.store = *store_,
                                             .clock = clock_,
                                             .region = region_,
                                             .request = *std::move(request),
                                             .caller = caller},
                                        **operation, cors_, documents_);
  }

  http::Response preflight(const http::RequestHead& head) override {
    return internal::preflight(cors_, head);
  }

  [[nodiscard]] Named name(const http::RequestHead& head) const override {
    const Result<S3Request> request = parse_request(head);
    if (!request) return {"s3:?", "*"};
    const Result<const Operation*> operation = find_operation(*request);
    return {operation ? name_action(**operation) : "s3:?", name_resource(*request)};
  }

  [[nodiscard]] http::Response refuse(const http::RequestHead& head,
                                      const Error& error) const override {
    return error_response(to_s3_error(error), head.method, head.path(), random_id(8));
  }

 private:
  std::unique_ptr<LocalStore> store_;
  const Clock& clock_;
  const std::string region_;
  CorsRules cors_{*store_};
  ByteBudget documents_{kMaxDocuments};
  UploadSweeper sweeper_;
};

}  // namespace
}  // namespace internal

Result<std::unique_ptr<S3Service>> S3Service::open(const std::filesystem::path& folder,
                                                   const Clock& clock, std::string region,
                                                   const S3Options& options) {
  std::unique_ptr<S3Service> service = std::make_unique<internal::ServiceImpl>(
      TRY(LocalStore::open(folder, clock)), clock, std::move(region), options);
  return service;
}

}  // namespace atelier::objects
