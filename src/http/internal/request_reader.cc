#include "http/internal/request_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <cstring>
#include <utility>

namespace atelier::http::internal {

namespace beast = boost::beast;

namespace {

constexpr std::size_t kMaxHeaders = 200;

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

// Writes fields straight into our own head, where Beast's message would be a second copy.
struct RequestReader::Parser final : beast::http::basic_parser<true> {
  RequestHead head;
  bool head_done = false;
  std::size_t head_bytes = 0;
  int http_version = 11;
  std::size_t field_count = 0;
  std::span<std::byte> to;
  std::size_t written = 0;

  explicit Parser(std::size_t max_header_bytes) {
    // Beast's own limit depends on how the bytes are cut, so feed() counts; this one is never met
    // by a head that feed() would allow.
    header_limit(static_cast<std::uint32_t>(2 * max_header_bytes + 1024));
    body_limit(boost::none);  // the server counts, and answers 413
  }

  void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view target,
                       int version, beast::error_code&) override {
    head.method = view(method);
    head.target = view(target);
    http_version = version;
  }
  void on_response_impl(int, beast::string_view, int, beast::error_code&) override {}
  void on_field_impl(beast::http::field, beast::string_view name, beast::string_view value,
                     beast::error_code& failure) override {
    if (++field_count > kMaxHeaders) {
      failure = beast::http::error::header_limit;
    } else if (!head_done) {  // trailers of the transfer coding mean nothing to us
      head.headers.add(std::string{view(name)}, std::string{view(value)});
    }
  }
  // Of Beast since Boost 1.86, where it is pure.
  virtual void on_trailer_field_impl(  // NOLINT: overrides there, is new here
      beast::http::field, beast::string_view, beast::string_view, beast::error_code& failure) {
    if (++field_count > kMaxHeaders) failure = beast::http::error::header_limit;
  }
  void on_header_impl(beast::error_code&) override { head_done = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, beast::error_code&) override {}
  std::size_t on_body_impl(beast::string_view body, beast::error_code&) override {
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, beast::error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view body,
                                 beast::error_code& failure) override {
    const std::size_t taken = std::min(body.size(), to.size() - written);
    std::memcpy(to.data() + written, body.data(), taken);
    written += taken;
    if (taken < body.size()) failure = beast::http::error::need_buffer;
    return taken;
  }
  void on_finish_impl(beast::error_code&) override {}
};

namespace {

std::optional<Refusal> check_target(std::string& target) {
  // A proxy's form names scheme and host; what they say is in Host as well.
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() ||
        !equal_without_case(std::string_view{target}.substr(0, scheme.size()), scheme)) {
      continue;
    }
    const std::size_t path = target.find_first_of("/?", scheme.size());
    target = path == std::string::npos ? "/" : target.substr(path);
    if (target[0] == '?') target.insert(0, "/");
  }
  if (target.starts_with('/') || target == "*") return std::nullopt;
  return Refusal{400, "the request target must start with '/'"};
}

// What the framing of the body depends on; a doubt about it is how requests are smuggled.
std::optional<Refusal> check_framing(const RequestHead& head, bool http_1_0, bool chunked) {
  std::size_t lengths = 0;
  std::size_t codings = 0;
  std::size_t hosts = 0;
  for (const auto& [name, value] : head.headers.fields()) {
    if (equal_without_case(name, "content-length")) ++lengths;
    if (equal_without_case(name, "host")) ++hosts;
    if (!equal_without_case(name, "transfer-encoding")) continue;
    ++codings;
    if (!equal_without_case(value, "chunked")) {
      return Refusal{501, fmt::format("transfer-encoding '{}' is not served; only 'chunked' is",
                                      value.substr(0, 64))};
    }
  }
  if (lengths > 1) return Refusal{400, "more than one Content-Length"};
  if (codings > 1 || (codings == 1 && (lengths > 0 || http_1_0 || !chunked))) {
    return Refusal{400, "Transfer-Encoding together with what it excludes"};
  }
  if (hosts > 1 || (hosts == 0 && !http_1_0)) {
    return Refusal{400, "a request needs exactly one Host header"};
  }
  return std::nullopt;
}

Refusal refusal_for(const beast::error_code& failure, std::size_t max_header_bytes) {
  if (failure == beast::http::error::header_limit) {
    return {431, fmt::format("the request head is larger than {} bytes or {} headers",
                             max_header_bytes, kMaxHeaders)};
  }
  return {400, fmt::format("malformed request: {}", failure.message())};
}

}  // namespace

RequestReader::RequestReader(std::size_t max_header_bytes) : max_header_bytes_(max_header_bytes) {
  reset();
}
RequestReader::~RequestReader() = default;

void RequestReader::reset() { parser_ = std::make_unique<Parser>(max_header_bytes_); }

std::variant<NeedMore, ParsedHead, Refusal> RequestReader::feed(std::string_view bytes,
                                                                std::size_t& used) {
  used = 0;
  // Some clients end a body with a line end too many (RFC 9112, 2.2).
  while (!parser_->got_some() && bytes.substr(used).starts_with("\r\n")) used += 2;
  if (used == bytes.size() || (!parser_->got_some() && bytes.substr(used) == "\r")) {
    return NeedMore{};
  }
  beast::error_code failure;
  const std::size_t taken =
      parser_->put(boost::asio::const_buffer{bytes.data() + used, bytes.size() - used}, failure);
  used += taken;
  parser_->head_bytes += taken;
  const std::size_t known = parser_->head_bytes + (parser_->head_done ? 0 : bytes.size() - used);
  if (known > max_header_bytes_) failure = beast::http::error::header_limit;
  if (failure && failure != beast::http::error::need_more) {
    return refusal_for(failure, max_header_bytes_);
  }
  if (!parser_->head_done) return NeedMore{};

  ParsedHead parsed;
  parsed.http_1_0 = parser_->http_version == 10;
  parsed.chunked = parser_->chunked();
  parsed.keep_alive = parser_->keep_alive();
  parsed.head = std::move(parser_->head);
  if (auto refused = check_framing(parsed.head, parsed.http_1_0, parsed.chunked)) return *refused;
  if (auto refused = check_target(parsed.head.target)) return *refused;
  if (!parsed.chunked) {
    const auto length = parser_->content_length();
    parsed.head.content_length = length ? *length : 0;
  }
  if (const auto expect = parsed.head.headers.find("expect"); expect && !parsed.http_1_0) {
    if (!equal_without_case(*expect, "100-continue")) {
      return Refusal{417, "only 'Expect: 100-continue' is understood"};
    }
    parsed.expects_continue = true;
  }
  return parsed;
}

RequestReader::Decoded RequestReader::decode(std::string_view wire, std::span<std::byte> to) {
  Decoded decoded;
  parser_->eager(true);
  parser_->to = to;
  parser_->written = 0;
  beast::error_code failure;
  if (!wire.empty() && !parser_->is_done()) {
    decoded.used = parser_->put(boost::asio::const_buffer{wire.data(), wire.size()}, failure);
  }
  decoded.written = parser_->written;
  decoded.done = parser_->is_done();
  decoded.broken = failure && failure != beast::http::error::need_more &&
                   failure != beast::http::error::need_buffer;
  return decoded;
}

}  // namespace atelier::http::internal
