#include "http/internal/transfer.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <utility>

#include "http/internal/response_head.h"

namespace atelier::http::internal {
namespace {

// From 128 KiB on glibc hands the buffer back to the kernel after each transfer, which costs ten
// times the transfer (measured: 70-85 us of CPU for a GET of 150 KB, against 500-970 us).
constexpr long kBuffer = 112 * 1024;
constexpr std::size_t kMaxResponseHeaders = 1000;
constexpr std::chrono::milliseconds kAskEvery{100};

bool may_be_repeated(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "PUT" || method == "DELETE" ||
         method == "OPTIONS";
}

bool is_loopback(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return false;
  const std::string_view host = url.substr(scheme + 3);
  return host.starts_with("127.") || host.starts_with("[::1]") ||
         host.substr(0, host.find_first_of(":/?")) == "localhost";
}

std::size_t on_read(char* to, std::size_t size, std::size_t count, void* transfer) {
  return static_cast<Transfer*>(transfer)->read(to, size * count);
}

std::size_t on_write(char* from, std::size_t size, std::size_t count, void* transfer) {
  return static_cast<Transfer*>(transfer)->write(from, size * count);
}

std::size_t on_header(char* from, std::size_t size, std::size_t count, void* transfer) {
  return static_cast<Transfer*>(transfer)->header({from, size * count});
}

int on_debug(CURL*, curl_infotype type, char*, std::size_t, void* transfer) {
  if (type == CURLINFO_HEADER_OUT) ++static_cast<Transfer*>(transfer)->times_sent;
  return 0;
}

// Anything but 0 ends the transfer.
int on_progress(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(transfer)->goes_on() ? 0 : 1;
}

// curl sends a body again on a new connection when a kept one turns out to be closed.
int on_seek(void* transfer, curl_off_t offset, int origin) {
  if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<Transfer*>(transfer)->sent = static_cast<std::uint64_t>(offset);
  return CURL_SEEKFUNC_OK;
}

}  // namespace

std::string name_of(const ClientRequest& request) {
  return request.method + " " + request.url.substr(0, request.url.find('?'));
}

std::size_t Transfer::read(char* to, std::size_t room) {
  const std::uint64_t left = body_size() - std::min(sent, body_size());
  const std::size_t wanted = std::min<std::uint64_t>(room, left);
  if (wanted == 0) return 0;
  if (!request.body_file) {
    std::copy_n(request.body.data() + sent, wanted, to);
    sent += wanted;
    return wanted;
  }
  const FileSlice& file = *request.body_file;
  ssize_t got;
  do {
    got = pread(file.fd.get(), to, wanted, static_cast<off_t>(file.offset + sent));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) {
    failure = got < 0 ? error_from_errno("read the body of " + name_of(request), errno)
                      : Error{Code::kDataLoss, fmt::format("{}: the file of the body ended {} "
                                                           "bytes early",
                                                           name_of(request), left)};
    return CURL_READFUNC_ABORT;
  }
  sent += static_cast<std::uint64_t>(got);
  return static_cast<std::size_t>(got);
}

// Runs a callback of the caller; false, with `failure` set, when it refuses.
bool Transfer::called(const std::function<Result<void>()>& callback) {
  try {
    const Result<void> taken = callback();
    if (taken) return true;
    failure = taken.error();
  } catch (const std::exception& thrown) {
    failure = Error{Code::kInternal, fmt::format("{}: {}", name_of(request), thrown.what())};
  }
  return false;
}

bool Transfer::goes_on() {
  const auto now = std::chrono::steady_clock::now();
  if (now - asked < kAskEvery) return true;
  asked = now;
  return called([this]() -> Result<void> {
    if (!request.cancelled()) return {};
    return Error{Code::kCancelled, name_of(request) + ": the transfer was stopped"};
  });
}

std::size_t Transfer::write(const char* from, std::size_t size) {
  if (request.on_body && response.status >= 200 && response.status < 300) {
    // Anything but size ends the transfer.
    return called([&] {
      return request.on_body(std::as_bytes(std::span{from, size}));
    })
               ? size
               : size + 1;
  }
  if (size > request.max_body_bytes - std::min(response.body.size(), request.max_body_bytes)) {
    failure =
        Error{Code::kResourceExhausted, fmt::format("{}: an answer of more than {} bytes",
                                                    name_of(request), request.max_body_bytes)};
    return size + 1;
  }
  response.body.append(from, size);
  return size;
}

std::size_t Transfer::header(std::string_view line) {
  const std::size_t size = line.size();
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {  // also after a "100 Continue"
    response = {};
    head_ended = false;
    const std::size_t blank = line.find(' ');
    if (blank != std::string_view::npos) {
      std::from_chars(line.data() + blank + 1, line.data() + line.size(), response.status);
    }
    return size;
  }
  if (line.empty() && !head_ended) {
    head_ended = true;
    if (request.on_head && response.status >= 200 && response.status < 300) {
      return called([&] { return request.on_head(response.status, response.headers); }) ? size
                                                                                        : size + 1;
    }
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size;
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ') || value.starts_with('\t')) value.remove_prefix(1);
  while (value.ends_with(' ') || value.ends_with('\t')) value.remove_suffix(1);
  if (response.headers.fields().size() == kMaxResponseHeaders) {
    failure = Error{Code::kResourceExhausted, fmt::format("{}: an answer of more than {} headers",
                                                          name_of(request), kMaxResponseHeaders)};
    return size + 1;
  }
  response.headers.add(std::string{line.substr(0, colon)}, std::string{value});
  return size;
}

Result<void> Transfer::prepare_headers() {
  const auto append = [&](const std::string& line) {
    curl_slist* longer = curl().slist_append(headers.get(), line.c_str());
    static_cast<void>(headers.release());
    headers.reset(longer);
  };
  for (const auto& [name, value] : request.headers.fields()) {
    if (!internal::valid_header(name, value)) {
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: the header '{}' holds characters that a header cannot",
                               name_of(request), percent_encode(name))};
    }
    if (equal_without_case(name, "content-length")) continue;
    append(value.empty() ? name + ";" : name + ": " + value);
  }
  // What curl would add by itself.
  for (const char* name : {"Accept", "Expect", "Content-Type"}) {
    if (!request.headers.find(name)) append(std::string{name} + ":");
  }
  return {};
}

Result<void> Transfer::prepare() {
  TRY(prepare_headers());
  CURL* const to = easy.get();
  const auto set = [to](CURLoption option, auto value) { curl().easy_setopt(to, option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // a proxy's answer is no head of ours
  set(CURLOPT_BUFFERSIZE, kBuffer);
  set(CURLOPT_UPLOAD_BUFFERSIZE, kBuffer);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_timeout.count()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()) * 1000);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_timeout.count()));
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_ERRORBUFFER, curl_message.data());
  set(CURLOPT_PRIVATE, static_cast<void*>(this));
  set(CURLOPT_WRITEFUNCTION, &on_write);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  if (is_loopback(request.url)) set(CURLOPT_PROXY, "");
  if (request.count_sends) {
    set(CURLOPT_VERBOSE, 1L);
    set(CURLOPT_DEBUGFUNCTION, &on_debug);
    set(CURLOPT_DEBUGDATA, static_cast<void*>(this));
  }
  if (request.cancelled) {
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &on_progress);
    set(CURLOPT_XFERINFODATA, static_cast<void*>(this));
  }
  const bool sends_body = body_size() > 0 || request.method == "PUT" || request.method == "POST" ||
                          request.method == "PATCH";
  if (sends_body) {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body_size()));
    set(CURLOPT_READFUNCTION, &on_read);
    set(CURLOPT_READDATA, static_cast<void*>(this));
    set(CURLOPT_SEEKFUNCTION, &on_seek);
    set(CURLOPT_SEEKDATA, static_cast<void*>(this));
  } else if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  }
  set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  return {};
}

Result<ClientResponse> Transfer::outcome(CURLcode code) {
  if (failure) return *std::move(failure);
  // curl takes a head that is cut off for an answer without a body.
  if (code == CURLE_OK && head_ended) {
    response.times_sent = times_sent;
    return std::move(response);
  }
  if (code == CURLE_OK) code = CURLE_PARTIAL_FILE;
  curl_off_t ready = 0;  // when the request could be sent; 0: never
  curl().easy_getinfo(easy.get(), CURLINFO_PRETRANSFER_TIME_T, &ready);
  const Retry again = ready == 0 || may_be_repeated(request.method) ? Retry::kYes : Retry::kNo;
  const std::string message =
      fmt::format("{}: {}", name_of(request),
                  curl_message[0] != '\0' ? curl_message.data() : curl().easy_strerror(code));
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return Error{ready == 0 ? Code::kUnavailable : Code::kDeadlineExceeded, message, again};
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
      return Error{Code::kUnavailable, message, again};
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return Error{Code::kInvalidArgument, message};
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return Error{Code::kFailedPrecondition, message};
    case CURLE_OUT_OF_MEMORY:
      return Error{Code::kResourceExhausted, message};
    default:
      return Error{Code::kIo, message};
  }
}

}  // namespace atelier::http::internal
