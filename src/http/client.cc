#include "http/client.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <deque>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "http/internal/curl_library.h"
#include "http/internal/transfer.h"

namespace atelier::http {
namespace {

using internal::curl;
using internal::Done;
using internal::Easy;
using internal::name_of;
using internal::Transfer;

// With so many requests under way on each thread another one is started, where more are allowed.
constexpr unsigned kBusyLoop = 2;

struct FreeMulti {
  void operator()(CURLM* multi) const { curl().multi_cleanup(multi); }
};

}  // namespace

// A thread with its connections.
struct Client::Loop {
  const unsigned max_connections;
  const std::string ca_file;
  std::unique_ptr<CURLM, FreeMulti> multi;
  std::atomic<unsigned> load = 0;  // requests that have no answer yet
  std::mutex mutex;
  std::deque<std::unique_ptr<Transfer>> waiting;  // guarded by mutex
  bool stopping = false;                          // guarded by mutex
  // The loop's thread alone has these.
  std::unordered_map<CURL*, std::unique_ptr<Transfer>> active;
  std::vector<Easy> spare;
  std::thread thread;

  explicit Loop(const Options& options);  // throws when no thread can be had
  void stop();                            // then thread.join()
  void run();
  bool start_waiting();
  void start(std::unique_ptr<Transfer> transfer);
  void collect();
  void end(std::unique_ptr<Transfer> transfer, Result<ClientResponse> outcome);
  void cancel_all();
};

struct Client::State {
  const Options options;
  std::mutex mutex;
  std::vector<std::unique_ptr<Loop>> loops;  // guarded by mutex; only ever grows

  ~State();
  Result<Loop*> least_busy();  // with one request more
  bool is_own_thread();
};

Client::Loop::Loop(const Options& options)
    : max_connections(options.max_connections / options.threads), ca_file(options.ca_file) {
  multi.reset(curl().multi_init());
  ATELIER_CHECK(multi != nullptr, "curl_multi_init failed");
  curl().multi_setopt(multi.get(), CURLMOPT_MAXCONNECTS, static_cast<long>(max_connections));
  thread = std::thread{[this] { run(); }};
}

void Client::Loop::stop() {
  {
    const std::lock_guard lock{mutex};
    stopping = true;
  }
  curl().multi_wakeup(multi.get());
}

// All threads have ended before the first loop goes: a callback may still ask for another request,
// which any loop then refuses.
Client::State::~State() {
  for (const auto& loop : loops) loop->stop();
  for (const auto& loop : loops) loop->thread.join();
}

Result<Client::Loop*> Client::State::least_busy() {
  const std::lock_guard lock{mutex};
  auto best = std::ranges::min_element(
      loops, {}, [](const auto& loop) { return loop->load.load(std::memory_order_relaxed); });
  if ((best == loops.end() || (*best)->load >= kBusyLoop) && loops.size() < options.threads) {
    try {
      loops.push_back(std::make_unique<Loop>(options));
      best = std::prev(loops.end());
    } catch (const std::system_error& thrown) {  // the host has no thread left: the others do it
      if (loops.empty()) {
        return Error{Code::kResourceExhausted,
                     fmt::format("a thread for requests: {}", thrown.what()), Retry::kYes};
      }
      best = loops.begin();
    }
  }
  ++(*best)->load;
  return best->get();
}

bool Client::State::is_own_thread() {
  const std::lock_guard lock{mutex};
  return std::ranges::any_of(
      loops, [](const auto& loop) { return loop->thread.get_id() == std::this_thread::get_id(); });
}

void Client::Loop::run() {
  while (start_waiting()) {
    int running = 0;
    curl().multi_perform(multi.get(), &running);
    collect();
    // Ends at once when a request was given meanwhile (curl_multi_wakeup is remembered).
    curl().multi_poll(multi.get(), nullptr, 0, 60'000, nullptr);
  }
  cancel_all();
}

// False when the client is being destroyed.
bool Client::Loop::start_waiting() {
  while (active.size() < max_connections) {
    std::unique_ptr<Transfer> next;
    {
      const std::lock_guard lock{mutex};
      if (stopping) return false;
      if (waiting.empty()) return true;
      next = std::move(waiting.front());
      waiting.pop_front();
    }
    start(std::move(next));
  }
  const std::lock_guard lock{mutex};
  return !stopping;
}

void Client::Loop::start(std::unique_ptr<Transfer> transfer) {
  if (spare.empty()) {
    transfer->easy.reset(curl().easy_init());
    ATELIER_CHECK(transfer->easy != nullptr, "curl_easy_init failed");
  } else {
    transfer->easy = std::move(spare.back());
    spare.pop_back();
  }
  if (Result<void> ready = transfer->prepare(); !ready) {
    end(std::move(transfer), ready.error());
    return;
  }
  CURL* const easy = transfer->easy.get();
  if (!ca_file.empty()) curl().easy_setopt(easy, CURLOPT_CAINFO, ca_file.c_str());
  if (const CURLMcode code = curl().multi_add_handle(multi.get(), easy); code != CURLM_OK) {
    const std::string name = name_of(transfer->request);
    end(std::move(transfer), Error{Code::kInternal, fmt::format("{}: curl_multi_add_handle: {}",
                                                                name, static_cast<int>(code))});
    return;
  }
  active.emplace(easy, std::move(transfer));
}

void Client::Loop::collect() {
  int left = 0;
  while (const CURLMsg* message = curl().multi_info_read(multi.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    auto node = active.extract(message->easy_handle);
    std::unique_ptr<Transfer> transfer = std::move(node.mapped());
    curl().multi_remove_handle(multi.get(), transfer->easy.get());
    Result<ClientResponse> outcome = transfer->outcome(code);
    curl().easy_reset(transfer->easy.get());
    spare.push_back(std::move(transfer->easy));
    end(std::move(transfer), std::move(outcome));
    // A slot is free: what waits is started before the next poll.
    curl().multi_wakeup(multi.get());
  }
}

void Client::Loop::end(std::unique_ptr<Transfer> transfer, Result<ClientResponse> outcome) {
  --load;
  transfer->done(std::move(outcome));
}

void Client::Loop::cancel_all() {
  const Error cancelled{Code::kCancelled, "the HTTP client was closed"};
  const auto cancel = [&](std::unique_ptr<Transfer> transfer) {
    const std::string name = name_of(transfer->request);
    end(std::move(transfer), cancelled.within(name));
  };
  for (auto& [easy, transfer] : active) {
    curl().multi_remove_handle(multi.get(), easy);
    cancel(std::move(transfer));
  }
  active.clear();
  std::deque<std::unique_ptr<Transfer>> rest;
  {
    const std::lock_guard lock{mutex};
    rest.swap(waiting);
  }
  for (auto& transfer : rest) cancel(std::move(transfer));
}

Client::Client(Options options) {
  options.max_connections = std::max(1u, options.max_connections);
  options.threads = std::clamp(options.threads, 1u, options.max_connections);
  state_ = std::make_unique<State>(std::move(options));
}
Client::~Client() = default;

void Client::send_async(ClientRequest request, Done done) {
  auto transfer = std::make_unique<Transfer>();
  transfer->request = std::move(request);
  transfer->done = std::move(done);
  const Result<Loop*> chosen = state_->least_busy();
  if (!chosen) return transfer->done(chosen.error());
  Loop& loop = **chosen;
  {
    const std::lock_guard lock{loop.mutex};
    if (!loop.stopping) loop.waiting.push_back(std::move(transfer));
  }
  if (transfer) {
    loop.end(std::move(transfer), Error{Code::kCancelled, "the HTTP client is being closed"});
    return;
  }
  curl().multi_wakeup(loop.multi.get());
}

Result<ClientResponse> Client::send(ClientRequest request) {
  ATELIER_CHECK(!state_->is_own_thread(),
                "Client::send() on the client's own thread would wait for itself");
  std::promise<Result<ClientResponse>> promise;
  send_async(std::move(request),
             [&](Result<ClientResponse> outcome) { promise.set_value(std::move(outcome)); });
  return promise.get_future().get();
}

}  // namespace atelier::http
