#include "base/error.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace atelier {

Error Error::within(std::string_view what) const& {
  Error outer = *this;
  outer.message.insert(0, ": ").insert(0, what);
  return outer;
}

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kUnauthenticated:
      return "Unauthenticated";
    case Code::kPermissionDenied:
      return "PermissionDenied";
    case Code::kNotFound:
      return "NotFound";
    case Code::kAlreadyExists:
      return "AlreadyExists";
    case Code::kFailedPrecondition:
      return "FailedPrecondition";
    case Code::kAborted:
      return "Aborted";
    case Code::kOutOfRange:
      return "OutOfRange";
    case Code::kResourceExhausted:
      return "ResourceExhausted";
    case Code::kCancelled:
      return "Cancelled";
    case Code::kDeadlineExceeded:
      return "DeadlineExceeded";
    case Code::kUnavailable:
      return "Unavailable";
    case Code::kUnimplemented:
      return "Unimplemented";
    case Code::kDataLoss:
      return "DataLoss";
    case Code::kIo:
      return "Io";
    case Code::kInternal:
      return "Internal";
  }
  return "Internal";
}

Error error_from_errno(std::string_view what, int errno_value) {
  Code code = Code::kIo;
  Retry retry = Retry::kNo;
  switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
      code = Code::kNotFound;
      break;
    case EEXIST:
      code = Code::kAlreadyExists;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = Code::kPermissionDenied;
      break;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      code = Code::kResourceExhausted;
      break;
    case EINVAL:
    case ENAMETOOLONG:
      code = Code::kInvalidArgument;
      break;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EAGAIN:
    case EHOSTUNREACH:
    case ENETUNREACH:
      code = Code::kUnavailable;
      retry = Retry::kYes;
      break;
    case ETIMEDOUT:
      code = Code::kDeadlineExceeded;
      retry = Retry::kYes;
      break;
    default:
      break;
  }
  std::array<char, 256> buffer{};
  std::string message{what};
  message += ": ";
  message += strerror_r(errno_value, buffer.data(), buffer.size());
  return Error{code, std::move(message), retry};
}

void fail_check(const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "%s:%d: this should never happen: %.*s\n", file, line,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace atelier
