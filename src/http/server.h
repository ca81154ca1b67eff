// An HTTP/1.1 server: keep-alive, pipelining-safe, bounded in size, count and time; coroutines on
// Boost.Asio and Beast inside, none of it visible here.
//
//   Server server = TRY(Server::start({.listen = "127.0.0.1:0"}, handler));
//   std::cout << server.port();
//   server.stop();   // lets running exchanges end, for at most `drain`
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "http/message.h"

namespace atelier::http {

struct ServerOptions {
  std::string listen = "127.0.0.1:0";  // ADDR:PORT, [v6]:PORT; port 0 picks one
  // TLS with a certificate (chain) and its key, as PEM files; empty: plain HTTP.
  std::string tls_certificate{};
  std::string tls_key{};
  unsigned io_threads = 1;             // move bytes
  unsigned worker_threads = 8;         // run exchanges, which may block on disk
  std::size_t max_connections = 2048;  // one more waits in the backlog, until an idle one is closed
  std::size_t max_header_bytes = 64 * 1024;
  std::uint64_t max_body_bytes = std::uint64_t{5} << 30;  // S3's largest single PUT
  std::chrono::seconds header_timeout{30};  // for a whole request head, idle keep-alive included
  // For 64 KiB (or the rest) of a body in either direction: fewer in that time is no progress.
  std::chrono::seconds body_timeout{60};
  std::chrono::seconds drain{10};
};

class Server {
 public:
  // Listens and serves until stop() or destruction. `handler` must outlive the server.
  static Result<Server> start(const ServerOptions& options, Handler& handler);
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;
  ~Server();
  [[nodiscard]] std::string address() const;  // of the listening socket, such as "127.0.0.1"
  [[nodiscard]] std::uint16_t port() const;
  // Reads certificate and key again, for connections from now on; an error leaves the old ones.
  Result<void> reload_certificate();
  // Accepts nothing more, lets exchanges under way end for at most `drain`, then cuts their
  // connections. Returns when no exchange is left: one that blocks for longer is waited for.
  void stop();

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atelier::http
