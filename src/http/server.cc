#include "http/server.h"

#include <fmt/core.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/log.h"
#include "http/internal/connection.h"
#include "http/internal/tls_relay.h"
#include "http/internal/workers.h"

namespace atelier::http {

namespace asio = boost::asio;
using internal::Connection;
using tcp = asio::ip::tcp;
using SteadyTime = std::chrono::steady_clock::time_point;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// A connection and what the timekeeper may know about it while a coroutine works on it.
struct Link {
  using Socket = asio::generic::stream_protocol::socket;  // of the peer, or of its TlsRelay
  Socket socket;
  Connection connection;
  std::atomic<SteadyTime> deadline{SteadyTime::max()};
  std::atomic<SteadyTime> idle_since{SteadyTime::max()};  // max: not idle
  std::atomic<bool> writing{false};
  std::atomic<bool> expired{false};

  Link(Socket accepted, std::string peer, bool tls, const ServerOptions& options, Handler& handler,
       const std::atomic<bool>& stopping)
      : socket(std::move(accepted)),
        connection(socket.native_handle(), std::move(peer), tls, options, handler, stopping) {}

  // From any thread, while the link is registered (so that the descriptor is still ours).
  void cut() { ::shutdown(socket.native_handle(), SHUT_RDWR); }
};

std::string describe(const tcp::endpoint& endpoint) {
  return endpoint.address().is_v6()
             ? fmt::format("[{}]:{}", endpoint.address().to_string(), endpoint.port())
             : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

Result<tcp::endpoint> parse_listen(std::string_view text) {
  const Error wrong{Code::kInvalidArgument,
                    fmt::format("listen address '{}' is not ADDR:PORT, such as 127.0.0.1:8080 or "
                                "[::1]:8080 (port 0 picks one)",
                                text)};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  std::string host{text.substr(0, colon)};
  const std::string_view port_text = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return wrong;
  }
  if (host == "localhost") host = "127.0.0.1";
  std::uint16_t port = 0;
  const auto parsed = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (parsed.ec != std::errc{} || parsed.ptr != port_text.data() + port_text.size()) return wrong;
  boost::system::error_code failure;
  const auto address = asio::ip::make_address(host, failure);
  if (failure) return wrong;
  return tcp::endpoint{address, port};
}

}  // namespace

struct Server::State {
  ServerOptions options;
  Handler& handler;
  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  // The acceptor, its timer and the timekeeper share it.
  asio::strand<asio::io_context::executor_type> control{asio::make_strand(io)};
  tcp::acceptor acceptor{control};
  asio::steady_timer slot_free{control};
  asio::steady_timer tick{control};
  internal::Workers workers;
  std::vector<std::thread> threads;
  tcp::endpoint local;
  std::atomic<bool> stopping{false};

  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_set<Link*> links;                 // guarded by mutex
  std::unordered_set<internal::TlsRelay*> relays;  // guarded by mutex
  std::shared_ptr<asio::ssl::context> tls;         // guarded by mutex; null: without TLS
  int loops = 0;                                   // accept_loop and keep_time, guarded by mutex

  State(const ServerOptions& given, Handler& to)
      : options(given), handler(to), workers(given.worker_threads) {}

  Result<void> listen();
  void run();
  void stop();
  asio::awaitable<void> accept_loop();
  asio::awaitable<void> keep_time();
  void begin(Link::Socket socket, std::string peer, bool over_tls);
  asio::awaitable<void> serve(std::shared_ptr<Link> link);
  asio::awaitable<void> serve_tls(tcp::socket socket, std::string peer,
                                  std::shared_ptr<asio::ssl::context> context);
  Result<void> load_tls();
  asio::awaitable<Connection::Next> read_head(Link& link);
  asio::awaitable<Connection::Next> wait(Link& link, tcp::socket::wait_type what);
  bool begin_waiting(Link& link);
  void end_waiting(Link& link);
  void check_deadlines();
  void cut_idle(SteadyTime before);
  void forget(Link* link);
  void end_loop();
  std::size_t count();
};

Result<void> Server::State::listen() {
  const tcp::endpoint wanted = TRY(parse_listen(options.listen));
  boost::system::error_code failure;
  const auto check = [&](const char* what) -> Result<void> {
    if (!failure) return {};
    return error_from_errno(fmt::format("{} {}", what, options.listen), failure.value());
  };
  acceptor.open(wanted.protocol(), failure);
  TRY(check("open a socket for"));
  acceptor.set_option(tcp::acceptor::reuse_address{true}, failure);
  TRY(check("set up"));
  acceptor.bind(wanted, failure);
  TRY(check("bind to"));
  acceptor.listen(tcp::acceptor::max_listen_connections, failure);
  TRY(check("listen on"));
  local = acceptor.local_endpoint(failure);
  return check("ask for the port of");
}

void Server::State::run() {
  loops = 2;
  asio::co_spawn(control, accept_loop(), asio::detached);
  asio::co_spawn(control, keep_time(), asio::detached);
  for (unsigned i = 0; i < std::max(1u, options.io_threads); ++i) {
    threads.emplace_back([this] { io.run(); });
  }
}

// Connections: one over TLS has a relay as long as it lasts.
std::size_t Server::State::count() {
  const std::lock_guard lock{mutex};
  return std::max(links.size(), relays.size());
}

Result<void> Server::State::load_tls() {
  if (options.tls_certificate.empty()) return {};
  auto loaded = TRY(internal::load_certificate(options.tls_certificate, options.tls_key));
  const std::lock_guard lock{mutex};
  tls = std::move(loaded);
  return {};
}

void Server::State::end_loop() {
  const std::lock_guard lock{mutex};
  --loops;
  changed.notify_all();
}

asio::awaitable<void> Server::State::accept_loop() {
  while (!stopping) {
    if (count() >= options.max_connections) {
      slot_free.expires_at(SteadyTime::max());
      co_await slot_free.async_wait(kAwait);
      continue;
    }
    // A strand a connection where several threads move bytes; one thread needs none.
    const asio::any_io_executor executor = options.io_threads > 1
                                               ? asio::any_io_executor{asio::make_strand(io)}
                                               : asio::any_io_executor{io.get_executor()};
    auto [failure, socket] = co_await acceptor.async_accept(executor, kAwait);
    if (stopping) break;
    if (failure) {
      if (failure == asio::error::connection_aborted) continue;
      log::warning(fmt::format("http: accept: {}", failure.message()));
      slot_free.expires_after(std::chrono::milliseconds{100});  // out of descriptors, mostly
      co_await slot_free.async_wait(kAwait);
      continue;
    }
    boost::system::error_code ignored;
    const tcp::endpoint peer = socket.remote_endpoint(ignored);
    socket.set_option(tcp::no_delay{true}, ignored);
    std::shared_ptr<asio::ssl::context> context;
    {
      const std::lock_guard lock{mutex};
      context = tls;
    }
    if (context == nullptr) {
      begin(std::move(socket), describe(peer), false);
    } else {
      asio::co_spawn(executor, serve_tls(std::move(socket), describe(peer), std::move(context)),
                     asio::detached);
    }
  }
  end_loop();
}

void Server::State::begin(Link::Socket socket, std::string peer, bool over_tls) {
  boost::system::error_code ignored;
  socket.native_non_blocking(true, ignored);
  auto link = std::make_shared<Link>(std::move(socket), std::move(peer), over_tls, options, handler,
                                     stopping);
  {
    const std::lock_guard lock{mutex};
    links.insert(link.get());
  }
  // On the workers from one end to the other: the threads that move bytes only say that there are
  // some. So a request is handed from thread to thread once, where its first bytes come.
  asio::co_spawn(workers.executor(), serve(std::move(link)), asio::detached);
}

asio::awaitable<void> Server::State::serve_tls(tcp::socket socket, std::string peer,
                                               std::shared_ptr<asio::ssl::context> context) {
  const auto relay = std::make_shared<internal::TlsRelay>(
      std::move(socket), std::move(context),
      internal::TlsLimits{options.header_timeout, options.body_timeout});
  {
    const std::lock_guard lock{mutex};
    relays.insert(relay.get());
  }
  // In this order, and the other way round in stop(): one of the two sees the other.
  if (!stopping && co_await relay->handshake()) {
    Result<internal::TlsRelay::Plain> plain = relay->take_plain();
    if (plain) {
      begin(*std::move(plain), std::move(peer), true);
      co_await relay->run();
    } else {
      log::warning("http: " + plain.error().message);
    }
  }
  const std::lock_guard lock{mutex};
  relays.erase(relay.get());
  changed.notify_all();
  asio::post(control, [this] { slot_free.cancel(); });
}

// One timer for all connections: a timer each would cost a heap operation a request.
asio::awaitable<void> Server::State::keep_time() {
  const auto shortest = std::min(options.header_timeout, options.body_timeout);
  const auto period = std::clamp(std::chrono::milliseconds{shortest} / 8,
                                 std::chrono::milliseconds{50}, std::chrono::milliseconds{1000});
  while (!stopping) {
    tick.expires_after(period);
    co_await tick.async_wait(kAwait);
    check_deadlines();
    if (count() >= options.max_connections) {
      cut_idle(std::chrono::steady_clock::now() - std::chrono::seconds{1});
    }
  }
  end_loop();
}

void Server::State::check_deadlines() {
  const SteadyTime now = std::chrono::steady_clock::now();
  const std::lock_guard lock{mutex};
  for (Link* link : links) {
    SteadyTime deadline = link->deadline;
    if (deadline > now || !link->deadline.compare_exchange_strong(deadline, SteadyTime::max())) {
      continue;
    }
    link->expired = true;
    // Ends the wait; when reading, an answer (408) can still be sent.
    ::shutdown(link->socket.native_handle(), link->writing ? SHUT_RDWR : SHUT_RD);
  }
}

void Server::State::cut_idle(SteadyTime before) {
  const std::lock_guard lock{mutex};
  for (Link* link : links) {
    if (link->idle_since.load() <= before) link->cut();
  }
}

void Server::State::forget(Link* link) {
  const std::lock_guard lock{mutex};
  links.erase(link);
  changed.notify_all();
  asio::post(control, [this] { slot_free.cancel(); });
}

// False when there is nothing to wait for any more, because the server stops.
bool Server::State::begin_waiting(Link& link) {
  link.deadline = link.connection.deadline();
  if (!link.connection.idle()) return true;
  // In this order, and the other way round in stop(): one of the two sees the other.
  link.idle_since = std::chrono::steady_clock::now();
  return !stopping;
}

void Server::State::end_waiting(Link& link) {
  link.idle_since = SteadyTime::max();
  link.deadline = SteadyTime::max();
}

asio::awaitable<Connection::Next> Server::State::read_head(Link& link) {
  link.writing = false;
  if (!begin_waiting(link)) co_return Connection::Next::kClose;
  const std::span<char> room = link.connection.room();
  const auto [failure, count] =
      co_await link.socket.async_read_some(asio::buffer(room.data(), room.size()), kAwait);
  end_waiting(link);
  if (link.expired.exchange(false)) co_return link.connection.timed_out();
  co_return link.connection.received(failure ? 0 : count);
}

asio::awaitable<Connection::Next> Server::State::wait(Link& link, tcp::socket::wait_type what) {
  link.writing = what == tcp::socket::wait_write;
  if (!begin_waiting(link)) co_return Connection::Next::kClose;
  co_await link.socket.async_wait(what, kAwait);
  end_waiting(link);
  if (link.expired.exchange(false)) co_return link.connection.timed_out();
  co_return what == tcp::socket::wait_read ? link.connection.readable() : Connection::Next::kWork;
}

asio::awaitable<void> Server::State::serve(std::shared_ptr<Link> link) {
  // Before the descriptor is closed, whichever way this ends.
  struct Forget {
    State* state;
    Link* link;
    ~Forget() { state->forget(link); }
  } forget_at_end{this, link.get()};
  Connection::Next next = Connection::Next::kReadHead;
  while (next != Connection::Next::kClose) {
    switch (next) {
      case Connection::Next::kReadHead:
        next = co_await read_head(*link);
        break;
      case Connection::Next::kWaitReadable:
        next = co_await wait(*link, tcp::socket::wait_read);
        break;
      case Connection::Next::kWaitWritable:
        next = co_await wait(*link, tcp::socket::wait_write);
        break;
      case Connection::Next::kWork:
        next = link->connection.work();
        // It had its turn; others come before it goes on.
        if (next == Connection::Next::kWork) {
          co_await asio::post(workers.executor(), asio::use_awaitable);
        }
        break;
      case Connection::Next::kClose:
        break;
    }
  }
}

void Server::State::stop() {
  if (stopping.exchange(true)) return;
  asio::post(control, [this] {
    boost::system::error_code ignored;
    acceptor.close(ignored);
    slot_free.cancel();
    tick.cancel();
  });
  cut_idle(SteadyTime::max() - std::chrono::seconds{1});
  {
    std::unique_lock lock{mutex};
    if (!changed.wait_for(lock, options.drain, [&] { return links.empty() && loops == 0; })) {
      for (Link* link : links) link->cut();
    }
    changed.wait(lock, [&] { return links.empty() && loops == 0; });
    for (internal::TlsRelay* relay : relays) relay->cut();
    changed.wait(lock, [&] { return relays.empty(); });
  }
  workers.join();
  work.reset();
  for (std::thread& thread : threads) thread.join();
}

Result<Server> Server::start(const ServerOptions& options, Handler& handler) {
  auto state = std::make_unique<State>(options, handler);
  TRY(state->load_tls());
  TRY(state->listen());
  state->run();
  return Server{std::move(state)};
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&& other) noexcept {
  if (this != &other) {
    stop();
    state_ = std::move(other.state_);
  }
  return *this;
}
Server::~Server() { stop(); }

std::string Server::address() const { return state_->local.address().to_string(); }
std::uint16_t Server::port() const { return state_->local.port(); }
Result<void> Server::reload_certificate() { return state_->load_tls(); }
void Server::stop() {
  if (state_) state_->stop();
}

}  // namespace atelier::http
