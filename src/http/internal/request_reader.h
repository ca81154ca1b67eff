// Bytes of a connection to request heads and, for chunked transfer coding, to body bytes. Knows no
// socket, so that it is fuzzed as it is. Boost.Beast's parser is inside.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "http/message.h"

namespace atelier::http::internal {

struct ParsedHead {
  RequestHead head;  // without peer
  bool keep_alive = false;
  bool http_1_0 = false;
  bool expects_continue = false;
  bool chunked = false;
};

// Why a request cannot be served; the connection ends after it.
struct Refusal {
  int status = 400;
  std::string message;
};

struct NeedMore {};

class RequestReader {
 public:
  explicit RequestReader(std::size_t max_header_bytes);
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;
  ~RequestReader();

  // Forgets the last request.
  void reset();
  // Sets `used` to the bytes taken; the rest must be given again, with more behind it.
  std::variant<NeedMore, ParsedHead, Refusal> feed(std::string_view bytes, std::size_t& used);

  struct Decoded {
    std::size_t used = 0;     // of the wire
    std::size_t written = 0;  // to `to`
    bool done = false;
    bool broken = false;
  };
  // After a chunked head: takes off the framing. Makes progress unless `wire` is short of a whole
  // chunk header or `to` is empty.
  Decoded decode(std::string_view wire, std::span<std::byte> to);

 private:
  struct Parser;
  std::size_t max_header_bytes_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace atelier::http::internal
