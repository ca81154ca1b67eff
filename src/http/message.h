// An HTTP request and its answer, without a socket in sight: what a handler sees.
//
// A handler is asked once per request (begin), is fed the body as it arrives (on_body) and is asked
// for the answer (finish). So a body of any size passes through a handler in pieces, and every
// handler is tested without a network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"

namespace atelier::http {

// Header fields in the order of the wire; names compare without case.
class Headers {
 public:
  using Field = std::pair<std::string, std::string>;

  Headers() = default;
  Headers(std::initializer_list<Field> fields) : fields_(fields) {}
  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  // Replaces every field of that name.
  void set(std::string_view name, std::string value);
  // The first field of that name.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view name) const;
  // All fields of that name, joined by ",".
  [[nodiscard]] std::optional<std::string> joined(std::string_view name) const;
  [[nodiscard]] const std::vector<Field>& fields() const { return fields_; }

 private:
  std::vector<Field> fields_;
};

// Everything before the body.
struct RequestHead {
  std::string method;  // "GET", as on the wire
  std::string target;  // as on the wire: still percent-encoded, with the query
  Headers headers;
  std::optional<std::uint64_t> content_length;  // absent with chunked transfer-encoding
  std::string peer;                             // "127.0.0.1:51234"
  bool tls = false;

  // Parts of target, still encoded: before the first '?', and after it ("" without one).
  [[nodiscard]] std::string_view path() const;
  [[nodiscard]] std::string_view query() const;
};

// A piece of an open file as a body; sent without a copy through user space where that can be.
struct FileSlice {
  UniqueFd fd;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct Response {
  int status = 200;
  Headers headers;  // without Content-Length, Date and Connection, which the server writes
  std::variant<std::string, FileSlice> body;
  // For the answer to a HEAD: what Content-Length would be; the body stays empty.
  std::optional<std::uint64_t> head_content_length;
};

// One request under way. Used by one thread at a time, not always the same one. The calls may block
// on disk: the server makes them on a pool of threads, never on those that move bytes.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // False when the answer is known without the body (refused, or there is none to read): the server
  // then sends no "100 Continue" and calls finish() at once.
  [[nodiscard]] virtual bool wants_body() const { return true; }
  // The next piece of the body. False stops the reading, and finish() says why.
  virtual bool on_body(std::span<const std::byte> piece) = 0;
  // The answer, once, after the last piece (or after a false). Not called when the peer went away:
  // then the destructor is all there is, and must leave nothing half done behind.
  virtual Response finish() = 0;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // Never null. Called from many threads at once.
  virtual std::unique_ptr<Exchange> begin(const RequestHead& head) = 0;
};

// An exchange whose answer is known from the start.
std::unique_ptr<Exchange> answer(Response response);

// ASCII comparison without case, as for header names.
[[nodiscard]] bool equal_without_case(std::string_view a, std::string_view b);

// Percent-decoding; a broken escape is kInvalidArgument.
Result<std::string> percent_decode(std::string_view text, bool plus_is_space = false);
// Percent-encoding as SigV4 wants it: all but A-Za-z0-9-._~ (and '/' when `keep_slash`),
// upper-case.
std::string percent_encode(std::string_view text, bool keep_slash = false);
// Decoded (name, value) pairs in order; "a" without "=" has an empty value. '+' is a blank, as S3,
// browsers and form bodies have it (and as verify() signs it), unless `plus_is_space` is false.
// Bounded to 1,000 pairs.
Result<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query,
                                                                     bool plus_is_space = true);

}  // namespace atelier::http
