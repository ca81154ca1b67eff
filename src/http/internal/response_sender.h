// Sends one response after the other over a connected socket, as far as it takes bytes at once: its
// owner waits for room and calls again. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "http/internal/response_head.h"
#include "http/message.h"

namespace atelier::http::internal {

// A short text, for what the server answers by itself.
Response plain_response(int status, std::string_view message);

class ResponseSender {
 public:
  enum class Sent {
    kAll,
    kBlocked,  // until the socket takes more
    kYield,    // `most` bytes of a file went out
    kGone,     // the peer is, or the file is shorter than was promised
  };

  explicit ResponseSender(int fd) : fd_(fd) {}

  // A response that cannot be sent as it is becomes a 500.
  void begin(Response response, const Framing& framing);
  // Goes on where the last call ended; `moved` grows by the bytes that went out.
  Sent send(std::uint64_t most, std::uint64_t& moved);

 private:
  Sent send_memory(std::uint64_t& moved);
  Sent send_file(std::uint64_t most, std::uint64_t& moved);

  const int fd_;  // its owner's
  Response response_;
  ResponseHead head_;
  std::uint64_t sent_ = 0;  // of head and body together
};

}  // namespace atelier::http::internal
