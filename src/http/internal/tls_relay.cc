#include "http/internal/tls_relay.h"

#include <fmt/core.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

namespace atelier::http::internal {

namespace asio = boost::asio;
namespace fs = std::filesystem;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::seconds kGoodbye{2};  // for the peer's part of the end of TLS

Error unusable(std::string_view what, const fs::path& path, std::string_view why) {
  return Error{Code::kInvalidArgument, fmt::format("{} '{}': {}", what, path.string(), why)};
}

Result<void> check_key_file(const fs::path& key) {
  struct stat info {};
  if (stat(key.c_str(), &info) != 0) {
    return error_from_errno(fmt::format("--tls-key '{}'", key.string()), errno);
  }
  if ((info.st_mode & 07) == 0) return {};
  return Error{
      Code::kPermissionDenied,
      fmt::format("--tls-key '{}' can be read by everybody (mode {:04o}); run: chmod o= {}",
                  key.string(), info.st_mode & 07777, key.string())};
}

}  // namespace

Result<std::shared_ptr<asio::ssl::context>> load_certificate(const fs::path& certificate,
                                                             const fs::path& key) {
  TRY(check_key_file(key));
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  boost::system::error_code failure;
  context->use_certificate_chain_file(certificate.string(), failure);
  if (failure) return unusable("--tls-certificate", certificate, failure.message());
  // Refuses the key of another certificate, too.
  context->use_private_key_file(key.string(), asio::ssl::context::pem, failure);
  if (failure) return unusable("--tls-key", key, failure.message());
  return context;
}

TlsRelay::TlsRelay(asio::ip::tcp::socket accepted, std::shared_ptr<asio::ssl::context> context,
                   TlsLimits limits)
    : context_(std::move(context)),
      tls_(std::move(accepted), *context_),
      fd_(tls_.next_layer().native_handle()),
      plain_(tls_.get_executor()),
      timer_(tls_.get_executor()),
      inwards_done_(tls_.get_executor(), asio::steady_timer::time_point::max()),
      limits_(limits) {}

void TlsRelay::cut() { ::shutdown(fd_, SHUT_RDWR); }

// A peer that is over the time loses its connection; the next call begins another time.
void TlsRelay::limit(std::chrono::seconds time) {
  timer_.expires_after(time);
  timer_.async_wait([self = weak_from_this()](const boost::system::error_code& failure) {
    const auto relay = self.lock();
    if (relay && !failure) relay->cut();
  });
}

asio::awaitable<bool> TlsRelay::handshake() {
  limit(limits_.handshake);
  const auto [failure] = co_await tls_.async_handshake(asio::ssl::stream_base::server, kAwait);
  timer_.cancel();
  co_return !failure;
}

Result<TlsRelay::Plain> TlsRelay::take_plain() {
  Plain other{tls_.get_executor()};
  boost::system::error_code failure;
  asio::local::connect_pair(plain_, other, failure);
  if (failure) return error_from_errno("socketpair", failure.value());
  return other;
}

// From the peer to the server. The end of what the peer sends is told as such: the answer to it
// may be still to come.
asio::awaitable<void> TlsRelay::inwards() {
  while (true) {
    const auto [failure, count] = co_await tls_.async_read_some(asio::buffer(in_), kAwait);
    if (failure) break;
    const auto [refused, written] =
        co_await asio::async_write(plain_, asio::buffer(in_.data(), count), kAwait);
    if (refused) break;
  }
  boost::system::error_code ignored;
  plain_.shutdown(Plain::shutdown_send, ignored);
}

asio::awaitable<void> TlsRelay::outwards() {
  while (true) {
    const auto [failure, count] = co_await plain_.async_read_some(asio::buffer(out_), kAwait);
    if (failure) break;  // the server has closed its end
    limit(limits_.write);
    const auto [broken, written] =
        co_await asio::async_write(tls_, asio::buffer(out_.data(), count), kAwait);
    timer_.cancel();
    if (broken) break;
  }
  limit(kGoodbye);
  co_await tls_.async_shutdown(kAwait);
  timer_.cancel();
  cut();
}

asio::awaitable<void> TlsRelay::run() {
  const auto self = shared_from_this();
  bool reading = true;
  asio::co_spawn(
      tls_.get_executor(), [self]() -> asio::awaitable<void> { co_await self->inwards(); },
      [self, &reading](const std::exception_ptr&) {
        reading = false;
        self->inwards_done_.cancel();
      });
  co_await outwards();
  // Its read has ended by the cut; what it was about to write has nobody to read it.
  boost::system::error_code ignored;
  plain_.close(ignored);
  while (reading) co_await inwards_done_.async_wait(kAwait);
}

}  // namespace atelier::http::internal
