#include "objects/internal/s3_error.h"

#include <algorithm>
#include <array>
#include <optional>

#include "objects/internal/xml_writer.h"

namespace atelier::objects::internal {
namespace {

struct KnownCode {
  std::string_view code;
  int status;
  Code kind;
};

// "Error responses" of the Amazon S3 API Reference. InsufficientStorage is ours.
constexpr std::array kKnownCodes = {
    KnownCode{"AccessControlListNotSupported", 400, Code::kInvalidArgument},
    KnownCode{"AccessDenied", 403, Code::kPermissionDenied},
    KnownCode{"AccessForbidden", 403, Code::kPermissionDenied},
    KnownCode{"AuthorizationHeaderMalformed", 400, Code::kUnauthenticated},
    KnownCode{"AuthorizationQueryParametersError", 400, Code::kUnauthenticated},
    KnownCode{"BadDigest", 400, Code::kDataLoss},
    KnownCode{"BadRequest", 400, Code::kInvalidArgument},
    KnownCode{"BucketAlreadyExists", 409, Code::kAlreadyExists},
    KnownCode{"BucketNotEmpty", 409, Code::kFailedPrecondition},
    KnownCode{"EntityTooLarge", 400, Code::kInvalidArgument},
    KnownCode{"EntityTooSmall", 400, Code::kInvalidArgument},
    KnownCode{"ExpiredToken", 400, Code::kUnauthenticated},
    KnownCode{"IncompleteBody", 400, Code::kDataLoss},
    KnownCode{"InsufficientStorage", 507, Code::kResourceExhausted},
    KnownCode{"InternalError", 500, Code::kInternal},
    KnownCode{"InvalidAccessKeyId", 403, Code::kUnauthenticated},
    KnownCode{"InvalidArgument", 400, Code::kInvalidArgument},
    KnownCode{"InvalidBucketName", 400, Code::kInvalidArgument},
    KnownCode{"InvalidDigest", 400, Code::kInvalidArgument},
    KnownCode{"InvalidPart", 400, Code::kInvalidArgument},
    KnownCode{"InvalidPartNumber", 416, Code::kOutOfRange},
    KnownCode{"InvalidPartOrder", 400, Code::kInvalidArgument},
    KnownCode{"InvalidRange", 416, Code::kOutOfRange},
    KnownCode{"InvalidRequest", 400, Code::kInvalidArgument},
    KnownCode{"InvalidTag", 400, Code::kInvalidArgument},
    KnownCode{"InvalidToken", 400, Code::kUnauthenticated},
    KnownCode{"InvalidURI", 400, Code::kInvalidArgument},
    KnownCode{"KeyTooLongError", 400, Code::kInvalidArgument},
    KnownCode{"MalformedXML", 400, Code::kInvalidArgument},
    KnownCode{"MaxMessageLengthExceeded", 400, Code::kInvalidArgument},
    KnownCode{"MetadataTooLarge", 400, Code::kInvalidArgument},
    KnownCode{"MethodNotAllowed", 405, Code::kInvalidArgument},
    KnownCode{"MissingContentLength", 411, Code::kInvalidArgument},
    KnownCode{"NoSuchBucket", 404, Code::kNotFound},
    KnownCode{"NoSuchBucketPolicy", 404, Code::kNotFound},
    KnownCode{"NoSuchCORSConfiguration", 404, Code::kNotFound},
    KnownCode{"NoSuchKey", 404, Code::kNotFound},
    KnownCode{"NoSuchLifecycleConfiguration", 404, Code::kNotFound},
    KnownCode{"NoSuchTagSet", 404, Code::kNotFound},
    KnownCode{"NoSuchUpload", 404, Code::kNotFound},
    KnownCode{"NoSuchVersion", 404, Code::kNotFound},
    KnownCode{"NoSuchWebsiteConfiguration", 404, Code::kNotFound},
    KnownCode{"NotImplemented", 501, Code::kUnimplemented},
    KnownCode{"ObjectLockConfigurationNotFoundError", 404, Code::kNotFound},
    KnownCode{"OperationAborted", 409, Code::kAborted},
    KnownCode{"PreconditionFailed", 412, Code::kFailedPrecondition},
    KnownCode{"ReplicationConfigurationNotFoundError", 404, Code::kNotFound},
    KnownCode{"RequestTimeTooSkewed", 403, Code::kUnauthenticated},
    KnownCode{"RequestTimeout", 400, Code::kDeadlineExceeded},
    KnownCode{"ServerSideEncryptionConfigurationNotFoundError", 404, Code::kNotFound},
    KnownCode{"ServiceUnavailable", 503, Code::kUnavailable},
    KnownCode{"SignatureDoesNotMatch", 403, Code::kUnauthenticated},
    KnownCode{"SlowDown", 503, Code::kUnavailable},
    KnownCode{"XAmzContentSHA256Mismatch", 400, Code::kDataLoss},
};

const KnownCode* find_code(std::string_view code) {
  const auto at = std::find_if(kKnownCodes.begin(), kKnownCodes.end(),
                               [&](const KnownCode& known) { return known.code == code; });
  return at == kKnownCodes.end() ? nullptr : &*at;
}

std::string_view code_without_prefix(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kUnauthenticated:
    case Code::kPermissionDenied:
      return "AccessDenied";
    case Code::kNotFound:
      return "NoSuchKey";
    case Code::kFailedPrecondition:
      return "PreconditionFailed";
    case Code::kAborted:
      return "OperationAborted";
    case Code::kOutOfRange:
      return "InvalidRange";
    case Code::kResourceExhausted:
      return "InsufficientStorage";
    case Code::kUnavailable:
      return "ServiceUnavailable";
    case Code::kUnimplemented:
      return "NotImplemented";
    default:
      return "InternalError";
  }
}

}  // namespace

S3Error to_s3_error(const Error& error) {
  const std::size_t colon = error.message.find(": ");
  if (colon != std::string::npos) {
    if (const KnownCode* known = find_code(std::string_view{error.message}.substr(0, colon))) {
      return {std::string{known->code}, error.message.substr(colon + 2), known->status};
    }
  }
  const KnownCode* known = find_code(code_without_prefix(error.code));
  return {std::string{known->code}, error.message, known->status};
}

Error s3_error(std::string_view code, std::string_view message) {
  const KnownCode* known = find_code(code);
  ATELIER_CHECK(known != nullptr, "an S3 error code without a line in the table");
  return Error{known->kind, std::string{code} + ": " + std::string{message}};
}

http::Response error_response(const S3Error& error, std::string_view method,
                              std::string_view resource, std::string_view request_id) {
  http::Response response;
  response.status = error.status;
  response.headers.add("x-amz-request-id", std::string{request_id});
  if (method == "HEAD") {
    response.body = std::string{};
    return response;
  }
  XmlWriter xml;
  xml.open("Error");
  xml.element("Code", error.code);
  xml.element("Message", error.message);
  xml.element("Resource", resource);
  xml.element("RequestId", request_id);
  xml.close("Error");
  response.headers.add("Content-Type", "application/xml");
  response.body = std::move(xml).finish();
  return response;
}

}  // namespace atelier::objects::internal
