// Errors as S3 says them: a code, a status and a document.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "http/message.h"

namespace atelier::objects::internal {

struct S3Error {
  std::string code;
  std::string message;
  int status = 500;
};

// By the code in front of the message ("NoSuchKey: ..."), else by Error::code.
S3Error to_s3_error(const Error& error);

// An Error that to_s3_error() turns into `code`.
Error s3_error(std::string_view code, std::string_view message);

// The answer: a document, or none for a HEAD. `resource`: what was asked for, as on the wire.
http::Response error_response(const S3Error& error, std::string_view method,
                              std::string_view resource, std::string_view request_id);

}  // namespace atelier::objects::internal
