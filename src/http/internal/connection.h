// One connection of the server without the waiting: it reads and writes what the socket takes at
// once, and says what to wait for next. Its owner waits (server.cc). Used by one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "http/internal/request_reader.h"
#include "http/internal/response_sender.h"
#include "http/message.h"
#include "http/server.h"

namespace atelier::http::internal {

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // What the owner does next.
  enum class Next {
    kReadHead,      // read into room(), then received()
    kWaitReadable,  // then readable()
    kWaitWritable,  // then work()
    kWork,          // call work() on a thread that may block
    kClose,
  };

  // `fd` is a connected stream socket that stays the owner's; `tls`: what comes over it came over
  // TLS. `stopping`, once true, ends the
  // connection after the request under way.
  Connection(int fd, std::string peer, bool tls, const ServerOptions& options, Handler& handler,
             const std::atomic<bool>& stopping);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  // Where the bytes of a head go, and how many came (0: the peer is done).
  std::span<char> room();
  Next received(std::size_t count);
  // More of a body may be there; reads without running the exchange.
  Next readable();
  Next timed_out();
  // Runs the exchange as far as it gets; may block on disk, never on the network.
  Next work();

  // By when what is waited for must come.
  [[nodiscard]] Clock::time_point deadline() const { return deadline_; }
  // Nothing would be lost by closing it now.
  [[nodiscard]] bool idle() const;

 private:
  enum class Step { kHead, kBegin, kBody, kFinish, kRefuse, kWrite, kDrain, kLinger, kAbort };
  enum class Fill { kFull, kComplete, kBlocked, kGone, kBroken, kTooLarge };

  Next parse();
  Next refuse(int status, std::string message);
  Next step();
  Next begin();
  Next body();
  bool deliver(std::span<const std::byte> piece);
  void prepare(Response response);
  Next write();
  Next after_write();
  Next drain();
  Next linger();
  Fill fill();
  void take_input();
  Fill receive();
  [[nodiscard]] bool body_complete() const;
  [[nodiscard]] std::string_view input() const;
  void consume(std::size_t count);
  void extend_deadline(std::chrono::seconds by) { deadline_ = Clock::now() + by; }

  const int fd_;
  const std::string peer_;
  const bool tls_;
  const ServerOptions& options_;
  Handler& handler_;
  const std::atomic<bool>& stopping_;
  RequestReader reader_;
  Step step_ = Step::kHead;
  Clock::time_point deadline_;

  // Bytes of the wire that nobody took yet: input_[input_begin_, input_end_).
  std::unique_ptr<char[]> input_;
  std::size_t input_capacity_ = 0;
  std::size_t input_begin_ = 0;
  std::size_t input_end_ = 0;
  bool head_begun_ = false;

  ParsedHead request_;
  std::unique_ptr<Exchange> exchange_;
  Refusal refusal_;
  std::uint64_t body_left_ = 0;  // of a body with Content-Length
  std::uint64_t body_read_ = 0;
  bool chunks_done_ = false;
  bool body_not_invited_ = false;  // "Expect: 100-continue", and we did not say so
  std::unique_ptr<std::byte[]> piece_;
  std::size_t piece_capacity_ = 0;
  std::size_t piece_size_ = 0;

  ResponseSender sender_;
  bool keep_alive_ = false;
  std::uint64_t sent_since_deadline_ = 0;
  std::uint64_t turn_bytes_ = 0;  // moved in this call of work()
};

}  // namespace atelier::http::internal
