#include "http/internal/connection.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "base/log.h"

namespace atelier::http::internal {
namespace {

constexpr std::size_t kFirstInput = 4096;
constexpr std::size_t kChunkedInput = 64 * 1024;
// Just under glibc's threshold for mmap: from 128 KiB on each body would cost fresh pages.
constexpr std::size_t kPiece = 112 * 1024;
constexpr std::size_t kMinPiece = 64 * 1024;  // also what counts as progress
constexpr std::uint64_t kMaxTurn = 8 << 20;   // after which other connections get the worker
constexpr std::uint64_t kMaxDrain = 256 * 1024;
constexpr std::chrono::seconds kMaxLinger{5};

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

ssize_t receive_some(int fd, void* to, std::size_t size) {
  ssize_t got;
  do {
    got = recv(fd, to, size, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

Connection::Connection(int fd, std::string peer, bool tls, const ServerOptions& options,
                       Handler& handler, const std::atomic<bool>& stopping)
    : fd_(fd),
      peer_(std::move(peer)),
      tls_(tls),
      options_(options),
      handler_(handler),
      stopping_(stopping),
      reader_(options.max_header_bytes),
      sender_(fd) {
  extend_deadline(options_.header_timeout);
}

Connection::~Connection() = default;

bool Connection::idle() const {
  return (step_ == Step::kHead && !head_begun_) || step_ == Step::kLinger;
}

std::string_view Connection::input() const {
  return {input_.get() + input_begin_, input_end_ - input_begin_};
}

void Connection::consume(std::size_t count) {
  input_begin_ += count;
  if (input_begin_ == input_end_) input_begin_ = input_end_ = 0;
}

std::span<char> Connection::room() {
  if (input_begin_ > 0) {
    std::memmove(input_.get(), input_.get() + input_begin_, input_end_ - input_begin_);
    input_end_ -= input_begin_;
    input_begin_ = 0;
  }
  const std::size_t wanted = step_ == Step::kHead ? kFirstInput : kChunkedInput;
  if (input_capacity_ - input_end_ < wanted / 2) {
    const std::size_t capacity = std::max(wanted, 2 * input_capacity_);
    auto larger = std::make_unique_for_overwrite<char[]>(capacity);
    if (input_end_ > 0) std::memcpy(larger.get(), input_.get(), input_end_);
    input_ = std::move(larger);
    input_capacity_ = capacity;
  }
  return {input_.get() + input_end_, input_capacity_ - input_end_};
}

Connection::Next Connection::received(std::size_t count) {
  if (count == 0) return Next::kClose;  // also in the midst of a head: nobody waits for an answer
  input_end_ += count;
  return parse();
}

Connection::Next Connection::parse() {
  if (input_begin_ == input_end_) return Next::kReadHead;
  std::size_t used = 0;
  auto outcome = reader_.feed(input(), used);
  if (!head_begun_) extend_deadline(options_.header_timeout);
  head_begun_ = true;
  consume(used);
  if (std::holds_alternative<NeedMore>(outcome)) return Next::kReadHead;
  if (const auto* refused = std::get_if<Refusal>(&outcome)) {
    request_ = {};
    body_left_ = 0;
    return refuse(refused->status, refused->message);
  }
  request_ = std::get<ParsedHead>(std::move(outcome));
  request_.head.peer = peer_;
  request_.head.tls = tls_;
  chunks_done_ = false;
  body_left_ = request_.head.content_length.value_or(0);
  body_read_ = 0;
  if (stopping_) return refuse(503, "the server is stopping");
  if (body_left_ > options_.max_body_bytes) {
    return refuse(413, fmt::format("a body of {} bytes; the limit is {}", body_left_,
                                   options_.max_body_bytes));
  }
  step_ = Step::kBegin;
  return Next::kWork;
}

Connection::Next Connection::refuse(int status, std::string message) {
  refusal_ = {status, std::move(message)};
  step_ = Step::kRefuse;
  return Next::kWork;
}

bool Connection::body_complete() const { return request_.chunked ? chunks_done_ : body_left_ == 0; }

void Connection::take_input() {
  const std::size_t taken =
      std::min<std::uint64_t>({input().size(), body_left_, piece_capacity_ - piece_size_});
  std::memcpy(piece_.get() + piece_size_, input().data(), taken);
  piece_size_ += taken;
  body_left_ -= taken;
  body_read_ += taken;
  consume(taken);
}

// Makes the next piece larger by what is there now.
Connection::Fill Connection::fill() {
  if (!piece_) {
    piece_capacity_ = request_.chunked ? kPiece : std::min<std::uint64_t>(kPiece, body_left_);
    piece_ = std::make_unique_for_overwrite<std::byte[]>(piece_capacity_);
  }
  while (true) {
    if (body_complete()) return Fill::kComplete;
    if (piece_size_ == piece_capacity_) return Fill::kFull;
    if (!input().empty() && request_.chunked) {
      const auto decoded =
          reader_.decode(input(), {piece_.get() + piece_size_, piece_capacity_ - piece_size_});
      consume(decoded.used);
      piece_size_ += decoded.written;
      body_read_ += decoded.written;
      chunks_done_ = decoded.done;
      if (decoded.broken) return Fill::kBroken;
      if (body_read_ > options_.max_body_bytes) return Fill::kTooLarge;
      if (decoded.used > 0) continue;
      // A chunk's header that does not end.
      if (input().size() > options_.max_header_bytes) return Fill::kBroken;
    } else if (!input().empty()) {
      take_input();
      continue;
    }
    const Fill got = receive();
    if (got != Fill::kFull) return got;
  }
}

// kFull: some bytes came.
Connection::Fill Connection::receive() {
  ssize_t got = 0;
  if (request_.chunked) {
    const std::span<char> to = room();
    got = receive_some(fd_, to.data(), to.size());
    if (got > 0) input_end_ += static_cast<std::size_t>(got);
  } else {
    const std::size_t wanted = std::min<std::uint64_t>(piece_capacity_ - piece_size_, body_left_);
    got = receive_some(fd_, piece_.get() + piece_size_, wanted);
    if (got > 0) {
      piece_size_ += static_cast<std::size_t>(got);
      body_left_ -= static_cast<std::uint64_t>(got);
      body_read_ += static_cast<std::uint64_t>(got);
    }
  }
  if (got > 0) {
    turn_bytes_ += static_cast<std::uint64_t>(got);
    return Fill::kFull;
  }
  return got < 0 && would_block() ? Fill::kBlocked : Fill::kGone;
}

Connection::Next Connection::readable() {
  switch (step_) {
    case Step::kBody: {
      const Fill filled = fill();
      return filled == Fill::kBlocked && piece_size_ < kMinPiece ? Next::kWaitReadable
                                                                 : Next::kWork;
    }
    case Step::kLinger:
      return linger();
    default:
      return Next::kWork;
  }
}

Connection::Next Connection::timed_out() {
  switch (step_) {
    case Step::kHead:
      if (!head_begun_) return Next::kClose;
      return refuse(408, fmt::format("the request head did not come within {} s",
                                     options_.header_timeout.count()));
    case Step::kBody:
      return refuse(
          408, fmt::format("the body made no progress for {} s", options_.body_timeout.count()));
    default:
      step_ = Step::kAbort;
      return Next::kWork;
  }
}

Connection::Next Connection::work() {
  turn_bytes_ = 0;
  try {
    return step();
  } catch (const std::exception& failure) {
    log::error(fmt::format("http: a handler threw: {}", failure.what()));
  } catch (...) {
    log::error("http: a handler threw something");
  }
  if (step_ == Step::kBegin || step_ == Step::kBody || step_ == Step::kFinish) {
    return refuse(500, "internal error");
  }
  step_ = Step::kAbort;
  return Next::kWork;
}

Connection::Next Connection::step() {
  Next next = Next::kWork;
  while (next == Next::kWork && turn_bytes_ < kMaxTurn) {
    switch (step_) {
      case Step::kHead:
        next = parse();
        break;
      case Step::kBegin:
        next = begin();
        break;
      case Step::kBody:
        next = body();
        break;
      case Step::kFinish: {
        Response response = exchange_->finish();
        exchange_.reset();
        prepare(std::move(response));
        break;
      }
      case Step::kRefuse:
        exchange_.reset();
        request_.keep_alive = false;
        prepare(plain_response(refusal_.status, refusal_.message));
        break;
      case Step::kWrite:
        next = write();
        break;
      case Step::kDrain:
        next = drain();
        break;
      case Step::kLinger:
        next = linger();
        break;
      case Step::kAbort:
        exchange_.reset();
        return Next::kClose;
    }
  }
  return next;
}

Connection::Next Connection::begin() {
  exchange_ = handler_.begin(request_.head);
  ATELIER_CHECK(exchange_ != nullptr, "Handler::begin() returned null");
  step_ = Step::kFinish;
  if (body_complete()) return Next::kWork;
  const bool wanted = exchange_->wants_body();
  body_not_invited_ = request_.expects_continue && input().empty();
  if (!wanted) return Next::kWork;
  step_ = Step::kBody;
  extend_deadline(options_.body_timeout);
  if (body_not_invited_) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    // Fits: the send buffer is empty, since the last answer had to be through before this request.
    const ssize_t sent = send(fd_, kContinue.data(), kContinue.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(kContinue.size())) step_ = Step::kAbort;
    body_not_invited_ = false;
  }
  return Next::kWork;
}

bool Connection::deliver(std::span<const std::byte> piece) {
  extend_deadline(options_.body_timeout);
  return piece.empty() || exchange_->on_body(piece);
}

Connection::Next Connection::body() {
  if (!request_.chunked && piece_size_ == 0 && input().size() >= body_left_) {
    // All of it came with the head: no copy.
    const std::string_view all = input().substr(0, body_left_);
    const bool more = deliver(std::as_bytes(std::span{all}));
    consume(all.size());
    body_left_ = 0;
    step_ = Step::kFinish;
    static_cast<void>(more);  // there is no more to refuse
    return Next::kWork;
  }
  const Fill filled = fill();
  if (filled == Fill::kGone) {
    step_ = Step::kAbort;
    return Next::kWork;
  }
  if (filled == Fill::kBroken) return refuse(400, "malformed request: bad chunk");
  if (filled == Fill::kTooLarge) {
    return refuse(413, fmt::format("a body of more than {} bytes", options_.max_body_bytes));
  }
  if (filled == Fill::kBlocked && piece_size_ < kMinPiece) return Next::kWaitReadable;
  const bool more = deliver({piece_.get(), piece_size_});
  piece_size_ = 0;
  if (!more || filled == Fill::kComplete) step_ = Step::kFinish;
  return Next::kWork;
}

void Connection::prepare(Response response) {
  piece_.reset();
  piece_size_ = 0;
  const bool drainable =
      body_complete() || (!request_.chunked && !body_not_invited_ && body_left_ <= kMaxDrain);
  keep_alive_ = request_.keep_alive && drainable && !stopping_;
  sender_.begin(std::move(response),
                {keep_alive_, request_.http_1_0, request_.head.method == "HEAD"});
  sent_since_deadline_ = 0;
  extend_deadline(options_.body_timeout);
  step_ = Step::kWrite;
}

Connection::Next Connection::write() {
  const std::uint64_t before = turn_bytes_;
  const ResponseSender::Sent sent = sender_.send(kMaxTurn, turn_bytes_);
  sent_since_deadline_ += turn_bytes_ - before;
  if (sent_since_deadline_ >= kMinPiece) {
    sent_since_deadline_ = 0;
    extend_deadline(options_.body_timeout);
  }
  switch (sent) {
    case ResponseSender::Sent::kBlocked:
      return Next::kWaitWritable;
    case ResponseSender::Sent::kYield:
      return Next::kWork;
    case ResponseSender::Sent::kGone:
      step_ = Step::kAbort;
      return Next::kWork;
    case ResponseSender::Sent::kAll:
      break;
  }
  return after_write();
}

Connection::Next Connection::after_write() {
  if (!keep_alive_) {
    // Closing with bytes unread would reset the connection and could take the answer with it.
    shutdown(fd_, SHUT_WR);
    extend_deadline(std::min(kMaxLinger, options_.body_timeout));
    step_ = Step::kLinger;
    return body_complete() && refusal_.message.empty() ? Next::kClose : Next::kWork;
  }
  if (!body_complete()) {
    extend_deadline(options_.body_timeout);
    step_ = Step::kDrain;
    return Next::kWork;
  }
  reader_.reset();
  head_begun_ = false;
  if (input().empty() && input_capacity_ > 4 * kFirstInput) {
    input_.reset();
    input_capacity_ = 0;
  }
  extend_deadline(options_.header_timeout);
  step_ = Step::kHead;
  return Next::kWork;
}

// Reads the rest of a small body that nobody wanted, so that the connection can go on.
Connection::Next Connection::drain() {
  piece_size_ = 0;
  const Fill filled = fill();
  piece_size_ = 0;
  switch (filled) {
    case Fill::kFull:
      return Next::kWork;
    case Fill::kComplete:
      piece_.reset();
      return after_write();
    case Fill::kBlocked:
      return Next::kWaitReadable;
    default:
      step_ = Step::kAbort;
      return Next::kWork;
  }
}

Connection::Next Connection::linger() {
  std::array<char, 16 * 1024> scrap;
  for (int i = 0; i < 64; ++i) {
    const ssize_t got = receive_some(fd_, scrap.data(), scrap.size());
    if (got == 0 || (got < 0 && !would_block())) return Next::kClose;
    if (got < 0) return Next::kWaitReadable;
  }
  return Next::kWaitReadable;
}

}  // namespace atelier::http::internal
