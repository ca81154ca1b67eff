// What the tests and benchmarks of HTTP need: handlers made of functions, and a peer that can
// misbehave.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "http/message.h"

namespace atelier::http::testing {

class FunctionHandler final : public Handler {
 public:
  using Begin = std::function<std::unique_ptr<Exchange>(const RequestHead&)>;
  explicit FunctionHandler(Begin begin) : begin_(std::move(begin)) {}
  std::unique_ptr<Exchange> begin(const RequestHead& head) override { return begin_(head); }

 private:
  Begin begin_;
};

// Collects the body, then asks `answer` for the response.
class Collect final : public Exchange {
 public:
  using Answer = std::function<Response(const RequestHead&, const std::string& body)>;
  Collect(RequestHead head, Answer answer) : head_(std::move(head)), answer_(std::move(answer)) {}
  bool on_body(std::span<const std::byte> piece) override {
    body_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return true;
  }
  Response finish() override { return answer_(head_, body_); }

 private:
  RequestHead head_;
  Answer answer_;
  std::string body_;
};

inline FunctionHandler collecting(Collect::Answer answer) {
  return FunctionHandler{[answer = std::move(answer)](const RequestHead& head) {
    return std::make_unique<Collect>(head, answer);
  }};
}

// A blocking TCP client that sends what it is told to.
class Peer {
 public:
  explicit Peer(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{20, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    connected_ = connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void half_close() { shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }

  // Up to and with `end`; what came so far when the stream ends first.
  std::string read_until(std::string_view end) {
    std::size_t at;
    while ((at = buffer_.find(end)) == std::string::npos) {
      if (!more()) return std::exchange(buffer_, {});
    }
    return take(at + end.size());
  }
  std::string read_exactly(std::size_t count) {
    while (buffer_.size() < count) {
      if (!more()) break;
    }
    return take(std::min(count, buffer_.size()));
  }
  std::string read_to_end() {
    while (more()) {
    }
    return std::exchange(buffer_, {});
  }

  struct Answer {
    int status = 0;  // 0: none came
    std::string head;
    std::string body;
  };
  Answer read_answer(bool to_head = false) {
    Answer answer;
    answer.head = read_until("\r\n\r\n");
    if (answer.head.size() < 12) return answer;
    answer.status = std::atoi(answer.head.c_str() + 9);
    const std::size_t length = answer.head.find("Content-Length: ");
    if (length != std::string::npos && !to_head) {
      answer.body = read_exactly(std::strtoull(answer.head.c_str() + length + 16, nullptr, 10));
    }
    return answer;
  }
  Answer ask(std::string_view request) {
    send(request);
    return read_answer(request.starts_with("HEAD"));
  }

 private:
  bool more() {
    char bytes[65536];
    const ssize_t got = recv(fd_.get(), bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    buffer_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }
  std::string take(std::size_t count) {
    std::string taken = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return taken;
  }

  UniqueFd fd_;
  bool connected_ = false;
  std::string buffer_;
};

}  // namespace atelier::http::testing
