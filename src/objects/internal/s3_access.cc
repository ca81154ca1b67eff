#include "objects/internal/s3_access.h"

#include <fmt/format.h>

#include <vector>

#include "access/resources.h"

namespace atelier::objects::internal {
namespace {

struct Named {
  std::string_view operation;
  std::string_view action;
};

// Where the action is not "s3:" and the operation's name.
constexpr Named kActions[] = {
    {"ListBuckets", "s3:ListAllMyBuckets"},
    {"ListObjects", "s3:ListBucket"},
    {"ListObjectsV2", "s3:ListBucket"},
    {"HeadBucket", "s3:ListBucket"},
    {"ListObjectVersions", "s3:ListBucketVersions"},
    {"DeleteBucketCors", "s3:PutBucketCORS"},
    {"DeleteBucketTagging", "s3:PutBucketTagging"},
    {"GetBucketAccelerateConfiguration", "s3:GetAccelerateConfiguration"},
    {"PutBucketAccelerateConfiguration", "s3:PutAccelerateConfiguration"},
    {"GetBucketEncryption", "s3:GetEncryptionConfiguration"},
    {"PutBucketEncryption", "s3:PutEncryptionConfiguration"},
    {"DeleteBucketEncryption", "s3:PutEncryptionConfiguration"},
    {"GetBucketLifecycleConfiguration", "s3:GetLifecycleConfiguration"},
    {"PutBucketLifecycleConfiguration", "s3:PutLifecycleConfiguration"},
    {"DeleteBucketLifecycle", "s3:PutLifecycleConfiguration"},
    {"GetBucketNotificationConfiguration", "s3:GetBucketNotification"},
    {"PutBucketNotificationConfiguration", "s3:PutBucketNotification"},
    {"GetObjectLockConfiguration", "s3:GetBucketObjectLockConfiguration"},
    {"PutObjectLockConfiguration", "s3:PutBucketObjectLockConfiguration"},
    {"DeleteBucketOwnershipControls", "s3:PutBucketOwnershipControls"},
    {"GetPublicAccessBlock", "s3:GetBucketPublicAccessBlock"},
    {"PutPublicAccessBlock", "s3:PutBucketPublicAccessBlock"},
    {"DeletePublicAccessBlock", "s3:PutBucketPublicAccessBlock"},
    {"GetBucketReplication", "s3:GetReplicationConfiguration"},
    {"PutBucketReplication", "s3:PutReplicationConfiguration"},
    {"DeleteBucketReplication", "s3:PutReplicationConfiguration"},
    {"ListMultipartUploads", "s3:ListBucketMultipartUploads"},
    {"ListParts", "s3:ListMultipartUploadParts"},
    {"HeadObject", "s3:GetObject"},
    {"GetObjectAttributes", "s3:GetObject"},
    {"CreateMultipartUpload", "s3:PutObject"},
    {"UploadPart", "s3:PutObject"},
    {"CompleteMultipartUpload", "s3:PutObject"},
    {"DeleteObjects", "s3:DeleteObject"},
    {"CheckReadable", "s3:GetObject"},
};

using Context = std::vector<std::pair<std::string_view, std::string_view>>;

Result<void> require(const Call& call, std::string_view action, std::string_view resource,
                     const Context& more = {}) {
  const http::Principal& caller = call.caller.principal;
  Context context{{"aws:PrincipalArn", caller.arn},
                  {"aws:SecureTransport", call.request.head.tls ? "true" : "false"}};
  context.insert(context.end(), more.begin(), more.end());
  const access::Request request{action, resource, context};
  const access::Decision decision = caller.authority.decide(request);
  if (decision == access::Decision::kAllowed) return {};
  return s3_error("AccessDenied", access::refusal_words(caller.arn, request, decision));
}

// What a listing is asked for; a listing of everything has the prefix "".
Context listing_context(const Call& call, std::string_view operation) {
  if (!operation.starts_with("List")) return {};
  Context context{{"s3:prefix", call.request.parameter("prefix").value_or("")}};
  if (const auto delimiter = call.request.parameter("delimiter")) {
    context.emplace_back("s3:delimiter", *delimiter);
  }
  return context;
}

}  // namespace

std::string name_action(const Operation& operation) {
  for (const Named& named : kActions) {
    if (named.operation == operation.name) return std::string{named.action};
  }
  return fmt::format("s3:{}", operation.name);
}

std::string name_resource(const S3Request& request) {
  if (request.bucket.empty()) return "*";
  return request.key.empty() ? access::s3_bucket_arn(request.bucket)
                             : access::s3_object_arn(request.bucket, request.key);
}

Result<void> authorize(const Call& call, const Operation& operation) {
  const S3Request& request = call.request;
  const std::string action = name_action(operation);
  if (operation.name == "DeleteObjects" || operation.name == "CheckReadable") {
    // Asked for each key of its body, which is read when any can be allowed.
    if (call.caller.principal.authority.could_allow(action)) return {};
    return require(call, action, access::s3_object_arn(request.bucket, "*"));
  }
  if (operation.level == Operation::Level::kService) return require(call, action, "*");
  if (operation.level == Operation::Level::kBucket) {
    return require(call, action, access::s3_bucket_arn(request.bucket),
                   listing_context(call, operation.name));
  }
  TRY(require_on_object(call, action, request.key));
  if (operation.name == "GetObjectAttributes") {
    return require_on_object(call, "s3:GetObjectAttributes", request.key);
  }
  if (action != "s3:PutObject") return {};
  if (request.header("x-amz-tagging")) {
    TRY(require_on_object(call, "s3:PutObjectTagging", request.key));
  }
  if (const auto source = request.header("x-amz-copy-source")) {
    const auto [bucket, key] = TRY(parse_copy_source(*source));
    TRY(require(call, "s3:GetObject", access::s3_object_arn(bucket, key)));
  }
  return {};
}

Result<void> require_copy_of_tags(const Call& call, std::string_view from_bucket,
                                  std::string_view from_key) {
  TRY(require(call, "s3:GetObjectTagging", access::s3_object_arn(from_bucket, from_key)));
  return require_on_object(call, "s3:PutObjectTagging", call.request.key);
}

Result<void> require_on_object(const Call& call, std::string_view action, std::string_view key) {
  return require(call, action, access::s3_object_arn(call.request.bucket, key));
}

}  // namespace atelier::objects::internal
