#include "objects/internal/s3_transport.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/rng.h"
#include "base/time.h"
#include "objects/internal/s3_replies.h"

namespace atelier::objects::internal {
namespace {

constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{5000};
constexpr std::chrono::milliseconds kProbeEvery{500};
constexpr unsigned kMostThreads = 4;
constexpr std::chrono::seconds kCleaningTime{5};

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  for (const char c : random_id(8)) seed = seed * 31 + static_cast<unsigned char>(c);
  return seed;
}

http::Client::Options client_options(const S3Endpoint& endpoint, const S3ClientOptions& options) {
  http::Client::Options out;
  out.max_connections = options.max_connections;
  // One thread takes in about a gigabyte a second and writes it to files.
  out.threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  out.ca_file = endpoint.ca_file;
  return out;
}

}  // namespace

std::string S3Call::what() const {
  return key.empty() ? fmt::format("{} s3://{}", method, bucket)
                     : fmt::format("{} s3://{}/{}", method, bucket, key);
}

S3Transport::S3Transport(const S3Endpoint& endpoint, const S3ClientOptions& options)
    : endpoint_(endpoint),
      options_(options),
      jitter_seed_(random_seed()),
      client_(client_options(endpoint, options)) {
  set_url(endpoint.url);
}

void S3Transport::set_url(std::string url) {
  while (url.ends_with('/') || url.ends_with('\n')) url.pop_back();
  const std::size_t scheme = url.find("://");
  const std::lock_guard lock{url_mutex_};
  host_ = url.substr(scheme == std::string::npos ? 0 : scheme + 3);
  base_ = std::move(url);
}

std::pair<std::string, std::string> S3Transport::base_and_host() const {
  const std::lock_guard lock{url_mutex_};
  return {base_, host_};
}

Result<http::ClientRequest> S3Transport::make_request(const S3Call& call) const {
  std::string target = "/";
  if (!call.bucket.empty()) target += http::percent_encode(call.bucket);
  if (!call.key.empty()) target += "/" + http::percent_encode(call.key, true);
  char separator = '?';
  for (const auto& [name, value] : call.query) {
    target += std::exchange(separator, '&') + http::percent_encode(name) + "=" +
              http::percent_encode(value);
  }
  const auto [base, host] = base_and_host();
  http::ClientRequest request;
  request.method = call.method;
  request.url = base + target;
  request.headers = call.headers;
  request.headers.set("Host", host);
  request.body = call.body;
  if (call.body_fd >= 0) {
    UniqueFd copy{fcntl(call.body_fd, F_DUPFD_CLOEXEC, 0)};
    if (!copy) return error_from_errno("duplicate a descriptor", errno);
    request.body_file = http::FileSlice{std::move(copy), call.body_offset, call.body_length};
  }
  request.on_head = call.on_head;
  request.on_body = call.on_body;
  if (!call.cleans_up) request.cancelled = options_.cancelled;
  if (call.on_body && options_.cancelled) {
    request.on_body = [this, &call](std::span<const std::byte> bytes) -> Result<void> {
      TRY(cancelled_yet());
      return call.on_body(bytes);
    };
  }
  // Bodies are covered by checksums of their own; hashing them for the signature too costs twice.
  const bool has_body = !call.body.empty() || call.body_fd >= 0;
  static const std::string empty_hash = sha256_hex("");
  const Time now = options_.clock->now() +
                   std::chrono::milliseconds{clock_offset_ms_.load(std::memory_order_relaxed)};
  http::sign(call.method, target, request.headers, has_body ? "UNSIGNED-PAYLOAD" : empty_hash,
             endpoint_.credentials, endpoint_.region, "s3", now);
  return request;
}

void S3Transport::correct_clock(const http::Headers& headers) {
  const auto date = headers.find("date");
  if (!date) return;
  const Result<Time> theirs = parse_http_date(*date);
  if (theirs) clock_offset_ms_ = (*theirs - options_.clock->now()).count();
}

Result<http::ClientResponse> S3Transport::send_once(const S3Call& call, bool* repeated) {
  if (!call.cleans_up) TRY(cancelled_yet());
  http::ClientRequest request = TRY(make_request(call));
  if (call.cleans_up) request.timeout = kCleaningTime;
  request.count_sends = repeated != nullptr;
  Result<http::ClientResponse> reply = client_.send(std::move(request));
  if (repeated != nullptr && reply && reply->times_sent > 1) *repeated = true;
  if (!reply) {
    Error error = reply.error().within(call.what());
    // The POSTs of S3 that this client makes may be made twice, whatever became of the first.
    if (call.method == "POST" && error.code == Code::kUnavailable) error.retry = Retry::kYes;
    return error;
  }
  if (reply->status >= 200 && reply->status < 300) return reply;
  Error error = reply_error(*reply, call.what());
  if (reply_code(reply->body) == "RequestTimeTooSkewed") correct_clock(reply->headers);
  return error;
}

Result<http::ClientResponse> S3Transport::send(const S3Call& call) {
  return send_often(call, nullptr);
}

Result<http::ClientResponse> S3Transport::send_exclusive(const S3Call& call, bool& repeated) {
  repeated = false;
  return send_often(call, &repeated);
}

Result<http::ClientResponse> S3Transport::send_often(const S3Call& call, bool* repeated) {
  for (unsigned attempt = 1;; ++attempt) {
    Result<http::ClientResponse> reply = send_once(call, repeated);
    if (reply || reply.error().retry == Retry::kNo || attempt >= options_.attempts) return reply;
    if (repeated != nullptr) *repeated = true;
    pause(attempt);
  }
}

void S3Transport::pause(unsigned attempt) {
  const auto ceiling = std::min(kLongestPause, kFirstPause * (1U << std::min(attempt - 1, 10U)));
  const double share = rng_uniform(jitter_seed_, 0, jitter_index_.fetch_add(1));
  options_.sleep(
      std::chrono::duration<double, std::milli>(share * static_cast<double>(ceiling.count())));
  if (options_.patience.count() > 0) wait_for_server();
}

Result<void> S3Transport::cancelled_yet() const {
  if (options_.cancelled && options_.cancelled()) {
    return Error{Code::kCancelled, "the transfer was stopped"};
  }
  return {};
}

bool S3Transport::answers() {
  http::ClientRequest request;
  request.method = "HEAD";
  request.url = base_and_host().first + "/";
  request.timeout = std::chrono::seconds{30};
  // Any answer will do, a refusal too: the try that follows finds out what it means.
  return client_.send(std::move(request)).has_value();
}

void S3Transport::wait_for_server() {
  const auto deadline = system_clock().steady() + options_.patience;
  for (bool first = true; !answers() && system_clock().steady() < deadline; first = false) {
    if (!cancelled_yet()) return;
    if (first && options_.on_unreachable) {
      options_.on_unreachable(fmt::format("the object store at {} does not answer; waiting for it",
                                          base_and_host().first));
    }
    std::this_thread::sleep_for(kProbeEvery);
    if (endpoint_.url_file.empty()) continue;
    if (Result<std::string> url = read_file(endpoint_.url_file, 4096)) set_url(*std::move(url));
  }
}

}  // namespace atelier::objects::internal
