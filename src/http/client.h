// An HTTP client over libcurl's multi interface: threads of its own, connections kept, requests
// from any thread. Signing is the caller's (http/sigv4.h); retries are the caller's; redirects are
// answers like any other. Proxies of the environment are used, but never for a loopback address.
//
//   Client client;
//   ClientResponse got = TRY(client.send({.url = "http://127.0.0.1:8080/bucket/key"}));
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "http/message.h"

namespace atelier::http {

struct ClientRequest {
  std::string method = "GET";
  std::string url;  // sent byte for byte (no squashing of dots)
  Headers headers;  // sent as they are; Content-Length is written by the client
  std::string body;
  std::optional<FileSlice> body_file;      // instead of body; read as it is sent
  std::chrono::seconds timeout{0};         // for the whole, 0: none
  std::chrono::seconds stall_timeout{60};  // without a byte
  std::chrono::milliseconds connect_timeout{5000};
  // Counts how often the request went out (ClientResponse::times_sent): when a kept connection
  // turns out to be closed, it goes out again on another, and the server may have carried out the
  // first.
  bool count_sends = false;
  // Of a body that is collected; a larger one is kResourceExhausted.
  std::size_t max_body_bytes = std::size_t{1} << 30;
  // Called on a thread of the client when the head of a 2xx answer is there, before on_body: what
  // its headers announce (a checksum, say) can be computed as the body passes. An error ends the
  // transfer.
  std::function<Result<void>(int status, const Headers& headers)> on_head;
  // Called on that thread with each piece of a 2xx body; without it the body is collected.
  // An error ends the transfer with that error. May block shortly (on disk), as other transfers
  // wait.
  std::function<Result<void>(std::span<const std::byte>)> on_body;
  // Asked on that thread at most ten times a second, and once a second while nothing moves; once it
  // is true the transfer ends as kCancelled.
  std::function<bool()> cancelled;
};

struct ClientResponse {
  int status = 0;
  Headers headers;
  std::string body;    // empty when on_body took it
  int times_sent = 0;  // with count_sends
};

class Client {
 public:
  struct Options {
    unsigned max_connections = 64;
    // At most; a second one is started when the first is busy. Each has its share of the
    // connections.
    unsigned threads = 1;
    std::string ca_file{};  // for https; empty: the system's
  };
  explicit Client(Options options);
  Client() : Client(Options{}) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();  // cancels what is under way

  // An answer of any status is a value; an Error means that there was none: kUnavailable (no
  // connection, or it broke), kDeadlineExceeded, kCancelled (so asked, or the client is being
  // destroyed), kInvalidArgument (what cannot be sent), or what on_body said. Retry::kYes when the
  // request cannot have been carried out, or is of a method that may be carried out twice.
  Result<ClientResponse> send(ClientRequest request);
  // The same without waiting; `done` is called on a thread of the client and must not block.
  void send_async(ClientRequest request, std::function<void(Result<ClientResponse>)> done);

 private:
  struct Loop;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atelier::http
