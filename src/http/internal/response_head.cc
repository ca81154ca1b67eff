#include "http/internal/response_head.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace atelier::http::internal {
namespace {

constexpr std::array<std::pair<int, std::string_view>, 36> kReasons = {{
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
}};

bool is_token_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view{"!#$%&'*+-.^_`|~"}.find(c) != std::string_view::npos;
}

// One a second and thread is enough.
std::string_view date_of(Time now) {
  static thread_local std::int64_t second = -1;
  static thread_local std::string text;
  const std::int64_t wanted = to_epoch_milliseconds(now) / 1000;
  if (wanted != second) {
    text = format_http_date(now);
    second = wanted;
  }
  return text;
}

// What the server alone decides.
bool is_ours(std::string_view name) {
  return equal_without_case(name, "content-length") || equal_without_case(name, "connection") ||
         equal_without_case(name, "transfer-encoding") || equal_without_case(name, "date");
}

}  // namespace

std::string_view reason_phrase(int status) {
  const auto found = std::find_if(kReasons.begin(), kReasons.end(),
                                  [&](const auto& entry) { return entry.first == status; });
  return found == kReasons.end() ? "Unknown" : found->second;
}

bool valid_header(std::string_view name, std::string_view value) {
  return !name.empty() && std::all_of(name.begin(), name.end(), is_token_character) &&
         std::all_of(value.begin(), value.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
         });
}

std::uint64_t body_length(const Response& response) {
  if (const auto* text = std::get_if<std::string>(&response.body)) return text->size();
  return std::get<FileSlice>(response.body).length;
}

Result<ResponseHead> response_head(const Response& response, const Framing& framing, Time now) {
  if (response.status < 200 || response.status > 599) {
    return Error{Code::kInternal,
                 fmt::format("a handler answered with status {}", response.status)};
  }
  ResponseHead head;
  std::string& bytes = head.bytes;
  bytes.reserve(512);
  fmt::format_to(std::back_inserter(bytes), "HTTP/1.1 {} {}\r\n", response.status,
                 reason_phrase(response.status));
  for (const auto& [name, value] : response.headers.fields()) {
    if (is_ours(name)) continue;
    if (!valid_header(name, value)) {
      return Error{Code::kInternal,
                   fmt::format("a handler answered with the header '{}', which holds characters "
                               "that a header cannot",
                               percent_encode(std::string_view{name}.substr(0, 64)))};
    }
    bytes.append(name).append(": ").append(value).append("\r\n");
  }
  const bool never_a_body = response.status == 204 || response.status == 304;
  const std::uint64_t length = framing.head_request && response.head_content_length
                                   ? *response.head_content_length
                                   : body_length(response);
  if (!never_a_body) {
    fmt::format_to(std::back_inserter(bytes), "Content-Length: {}\r\n", length);
  }
  bytes.append("Date: ").append(date_of(now)).append("\r\n");
  if (!framing.keep_alive) {
    bytes.append("Connection: close\r\n");
  } else if (framing.http_1_0) {
    bytes.append("Connection: keep-alive\r\n");
  }
  bytes.append("\r\n");
  head.sends_body = !never_a_body && !framing.head_request && body_length(response) > 0;
  return head;
}

}  // namespace atelier::http::internal
