// Signed requests to one S3 endpoint, tried again when that may help.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "http/client.h"
#include "objects/s3_client.h"

namespace atelier::objects::internal {

struct S3Call {
  std::string method{};
  std::string bucket{};
  std::string key{};
  std::vector<std::pair<std::string, std::string>> query{};
  http::Headers headers{};
  std::string_view body{};  // or a slice of an open file:
  int body_fd = -1;
  std::uint64_t body_offset = 0;
  std::uint64_t body_length = 0;
  std::function<Result<void>(int, const http::Headers&)> on_head{};
  std::function<Result<void>(std::span<const std::byte>)> on_body{};
  // What is left of a call that has failed goes also where calls are cancelled, in one short try.
  bool cleans_up = false;

  // "GET s3://bucket/key"
  [[nodiscard]] std::string what() const;
};

class S3Transport {
 public:
  S3Transport(const S3Endpoint& endpoint, const S3ClientOptions& options);

  // One try. An answer other than 2xx is an Error; Error::retry says whether to try again.
  // `repeated` (see send_exclusive()) is left alone when the request went out at most once.
  Result<http::ClientResponse> send_once(const S3Call& call, bool* repeated = nullptr);
  // Up to `attempts` tries. With a body that is streamed out (on_body), that is the caller's.
  Result<http::ClientResponse> send(const S3Call& call);
  // The same for what can be done only once. `repeated` says afterwards whether it may have been
  // carried out before, its answer being lost: a refusal may be of what this client has done
  // itself.
  Result<http::ClientResponse> send_exclusive(const S3Call& call, bool& repeated);
  // Waits before try number `attempt` (from 1): "full jitter" of Brooker, "Exponential Backoff And
  // Jitter", 2015. After it, with patience, until the server answers again.
  void pause(unsigned attempt);
  [[nodiscard]] unsigned attempts() const { return options_.attempts; }
  [[nodiscard]] const S3ClientOptions& options() const { return options_; }
  [[nodiscard]] const S3Endpoint& endpoint() const { return endpoint_; }

 private:
  Result<http::ClientResponse> send_often(const S3Call& call, bool* repeated);
  Result<http::ClientRequest> make_request(const S3Call& call) const;
  void correct_clock(const http::Headers& headers);
  void set_url(std::string url);
  [[nodiscard]] std::pair<std::string, std::string> base_and_host() const;
  [[nodiscard]] Result<void> cancelled_yet() const;
  bool answers();
  void wait_for_server();

  const S3Endpoint endpoint_;
  const S3ClientOptions options_;
  mutable std::mutex url_mutex_;                   // guards the next two
  std::string host_;                               // as in the Host header
  std::string base_;                               // "http://host:port"
  std::atomic<std::int64_t> clock_offset_ms_ = 0;  // server's time minus ours
  const std::uint64_t jitter_seed_;
  std::atomic<std::uint64_t> jitter_index_ = 0;
  http::Client client_;
};

}  // namespace atelier::objects::internal
