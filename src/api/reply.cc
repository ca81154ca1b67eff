#include "api/reply.h"

#include <fmt/format.h>

namespace atelier::api {

ApiError validation_error(std::string message) {
  return {400, "ValidationException", std::move(message)};
}

ApiError not_served(std::string_view service_label, std::string_view operation) {
  // 501 is a status that no AWS SDK tries again.
  return {501, "NotImplemented",
          fmt::format("{} is part of {}'s API, and this version of Atelier does not serve it",
                      operation, service_label)};
}

ApiError from_error(const Error& error) {
  switch (error.code) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kFailedPrecondition:
    case Code::kOutOfRange:
      return validation_error(error.message);
    case Code::kUnauthenticated:
      return {403, "UnrecognizedClientException", error.message};
    case Code::kPermissionDenied:
      return {400, "AccessDeniedException", error.message};
    case Code::kResourceExhausted:
      // What passes, such as a full disk, is tried again by clients; a limit is not.
      if (error.retry == Retry::kYes) return {503, "ServiceUnavailable", error.message};
      return {400, "ResourceLimitExceeded", error.message};
    case Code::kAborted:
      return {400, "ConflictException", error.message};
    case Code::kUnimplemented:
      return {501, "NotImplemented", error.message};
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kCancelled:
      return {503, "ServiceUnavailable", error.message};
    case Code::kDataLoss:
    case Code::kIo:
    case Code::kInternal:
      break;
  }
  return {500, "InternalFailure", error.message};
}

}  // namespace atelier::api
