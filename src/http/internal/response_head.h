// The bytes in front of a response's body.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/time.h"
#include "http/message.h"

namespace atelier::http::internal {

struct Framing {
  bool keep_alive = true;
  bool http_1_0 = false;
  bool head_request = false;  // the answer to a HEAD carries no body
};

struct ResponseHead {
  std::string bytes;
  bool sends_body = false;
};

// kInternal when the response holds what could not be sent as it is: a status out of range, or a
// header whose name or value could be read as more than one (response splitting).
Result<ResponseHead> response_head(const Response& response, const Framing& framing, Time now);

std::uint64_t body_length(const Response& response);

// "Not Found"; "Unknown" for a status without a name.
std::string_view reason_phrase(int status);

// A name that is a token, and a value without control characters.
bool valid_header(std::string_view name, std::string_view value);

}  // namespace atelier::http::internal
