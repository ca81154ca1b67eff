#include "http/internal/response_sender.h"

#include <fmt/core.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace atelier::http::internal {
namespace {

// sendfile(2) has no MSG_NOSIGNAL. The signal goes to the calling thread, so it can be held back
// and taken here, without a word about SIGPIPE to the rest of the process.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  ~NoSigpipe() {
    const int cause = errno;
    if (broken_ && sigismember(&before_, SIGPIPE) == 0) {
      const timespec now{};
      sigtimedwait(&pipe_, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = cause;
  }
  void broken() { broken_ = true; }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool broken_ = false;
};

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

Response plain_response(int status, std::string_view message) {
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "text/plain; charset=utf-8");
  response.body = std::string{message} + "\n";
  return response;
}

void ResponseSender::begin(Response response, const Framing& framing) {
  response_ = std::move(response);
  Result<ResponseHead> head = response_head(response_, framing, system_clock().now());
  if (!head) {
    log::error(fmt::format("http: {}", head.error().message));
    response_ = plain_response(500, "internal error");
    head = response_head(response_, framing, system_clock().now());
  }
  head_ = *std::move(head);
  sent_ = 0;
}

ResponseSender::Sent ResponseSender::send(std::uint64_t most, std::uint64_t& moved) {
  Sent sent = send_memory(moved);
  if (sent == Sent::kAll && head_.sends_body && std::holds_alternative<FileSlice>(response_.body)) {
    sent = send_file(most, moved);
  }
  if (sent == Sent::kAll) response_ = {};
  return sent;
}

ResponseSender::Sent ResponseSender::send_memory(std::uint64_t& moved) {
  const std::string& head = head_.bytes;
  const std::string* body = head_.sends_body ? std::get_if<std::string>(&response_.body) : nullptr;
  const bool file_follows = head_.sends_body && body == nullptr;
  const std::size_t total = head.size() + (body != nullptr ? body->size() : 0);
  while (sent_ < total) {
    std::array<iovec, 2> parts{};
    std::size_t count = 0;
    const auto part = [&](const std::string& text, std::size_t from) {
      parts[count++] = {const_cast<char*>(text.data()) + from, text.size() - from};
    };
    if (sent_ < head.size()) part(head, sent_);
    if (body != nullptr) part(*body, sent_ < head.size() ? 0 : sent_ - head.size());
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent =
        sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT | (file_follows ? MSG_MORE : 0));
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return would_block() ? Sent::kBlocked : Sent::kGone;
    sent_ += static_cast<std::size_t>(sent);
    moved += static_cast<std::size_t>(sent);
  }
  return Sent::kAll;
}

ResponseSender::Sent ResponseSender::send_file(std::uint64_t most, std::uint64_t& moved) {
  const FileSlice& slice = std::get<FileSlice>(response_.body);
  NoSigpipe quiet;
  while (true) {
    const std::uint64_t done = sent_ - head_.bytes.size();
    if (done == slice.length) return Sent::kAll;
    if (moved >= most) return Sent::kYield;
    off_t offset = static_cast<off_t>(slice.offset + done);
    const std::size_t wanted = std::min(slice.length - done, most - moved);
    const ssize_t sent = sendfile(fd_, slice.fd.get(), &offset, wanted);
    if (sent > 0) {
      sent_ += static_cast<std::size_t>(sent);
      moved += static_cast<std::size_t>(sent);
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && would_block()) return Sent::kBlocked;
    if (sent < 0 && errno == EPIPE) {
      quiet.broken();
    } else if (sent == 0 || errno != ECONNRESET) {
      // The length is promised already; a connection that ends early is how the peer learns.
      log::warning(fmt::format("http: a file ended {} bytes short of what was promised ({})",
                               slice.length - done, sent == 0 ? "shorter now" : strerror(errno)));
    }
    return Sent::kGone;
  }
}

}  // namespace atelier::http::internal
