// One TLS connection of a server, relayed to a plain socket on this machine: the rest of the server
// (internal/connection.h) reads and writes that one and knows nothing of TLS. A copy more than TLS
// inside of the connection would cost; sendfile and every timeout stay as they are.
//
//   auto relay = std::make_shared<TlsRelay>(std::move(accepted), context, limits);
//   if (co_await relay->handshake()) { serve(relay->take_plain()); co_await relay->run(); }
//
// All on the executor of the accepted socket; cut() from any thread.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <filesystem>
#include <memory>

#include "base/result.h"

namespace atelier::http::internal {

// TLS 1.2 and 1.3. A file that is missing, is no PEM or does not belong to the other is named; a
// key that everybody may read is refused.
Result<std::shared_ptr<boost::asio::ssl::context>> load_certificate(
    const std::filesystem::path& certificate, const std::filesystem::path& key);

struct TlsLimits {
  std::chrono::seconds handshake{30};
  std::chrono::seconds write{60};  // of 16 KiB to a peer that does not read
};

class TlsRelay : public std::enable_shared_from_this<TlsRelay> {
 public:
  using Plain = boost::asio::local::stream_protocol::socket;

  TlsRelay(boost::asio::ip::tcp::socket accepted,
           std::shared_ptr<boost::asio::ssl::context> context, TlsLimits limits);

  // False when the peer spoke no TLS, or none that we do, or was too slow.
  boost::asio::awaitable<bool> handshake();
  // The plain end for the server; once, after the handshake. It may fail for want of descriptors.
  Result<Plain> take_plain();
  // Until both sides are done.
  boost::asio::awaitable<void> run();
  // Ends it, whatever it waits for.
  void cut();

 private:
  boost::asio::awaitable<void> inwards();
  boost::asio::awaitable<void> outwards();
  void limit(std::chrono::seconds time);

  std::shared_ptr<boost::asio::ssl::context> context_;  // outlives the stream
  boost::asio::ssl::stream<boost::asio::ip::tcp::socket> tls_;
  const int fd_;
  Plain plain_;
  boost::asio::steady_timer timer_;  // of the handshake, then of what goes out
  boost::asio::steady_timer inwards_done_;
  const TlsLimits limits_;
  std::array<char, 16 * 1024> in_{};  // a TLS record
  std::array<char, 16 * 1024> out_{};
};

}  // namespace atelier::http::internal
