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
#include "http/internal/response_head.h"

namespace atelier::http {
namespace {

using internal::curl;

// From 128 KiB on glibc hands the buffer back to the kernel after each transfer, which costs ten
// times the transfer (measured: 70-85 us of CPU for a GET of 150 KB, against 500-970 us).
constexpr long kBuffer = 112 * 1024;
constexpr std::size_t kMaxResponseHeaders = 1000;
// With so many requests under way on each thread another one is started, where more are allowed.
constexpr unsigned kBusyLoop = 2;

using Done = std::function<void(Result<ClientResponse>)>;

struct FreeList {
  void operator()(curl_slist* list) const { curl().slist_free_all(list); }
};
struct FreeEasy {
  void operator()(CURL* easy) const { curl().easy_cleanup(easy); }
};
struct FreeMulti {
  void operator()(CURLM* multi) const { curl().multi_cleanup(multi); }
};
using Easy = std::unique_ptr<CURL, FreeEasy>;

// What a request is called in a message: never its query, which may hold a signature.
std::string name_of(const ClientRequest& request) {
  return request.method + " " + request.url.substr(0, request.url.find('?'));
}

bool may_be_repeated(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "PUT" || method == "DELETE" ||
         method == "OPTIONS";
}

bool is_loopback(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return false;
  const std::string_view host = url.substr(scheme + 3);
  return host.starts_with("127.") || host.starts_with("[::1]") ||
         host.substr(0, host.find_first_of(":/?")) == "localhost";
}

struct Transfer {
  ClientRequest request;
  Done done;
  ClientResponse response;
  Easy easy;
  std::unique_ptr<curl_slist, FreeList> headers;
  std::uint64_t sent = 0;
  int times_sent = 0;
  bool head_ended = false;
  std::optional<Error> failure;  // of a callback, more telling than curl's own
  std::array<char, CURL_ERROR_SIZE> curl_message{};

  [[nodiscard]] std::uint64_t body_size() const {
    return request.body_file ? request.body_file->length : request.body.size();
  }
  Result<void> prepare();
  Result<void> prepare_headers();
  bool called(const std::function<Result<void>()>& callback);
  std::size_t read(char* to, std::size_t room);
  std::size_t write(const char* from, std::size_t size);
  std::size_t header(std::string_view line);
  bool goes_on();
  Result<ClientResponse> outcome(CURLcode code);
};

std::size_t on_read(char* to, std::size_t size, std::size_t count, void* transfer) {
  return static_cast<Transfer*>(transfer)->read(to, size * count);
}

std::size_t on_write(char* from, std::size_t size, std::size_t count, void* transfer) {
  return static_cast<Transfer*>(transfer)->write(from, size * count);
}

std::size_t on_header(char* from, std::size_t size, std::size_t count, void* transfer) {
  return static_cast<Transfer*>(transfer)->header({from, size * count});
}

int on_debug(CURL*, curl_infotype type, char*, std::size_t, void* transfer) {
  if (type == CURLINFO_HEADER_OUT) ++static_cast<Transfer*>(transfer)->times_sent;
  return 0;
}

// Anything but 0 ends the transfer.
int on_progress(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(transfer)->goes_on() ? 0 : 1;
}

// curl sends a body again on a new connection when a kept one turns out to be closed.
int on_seek(void* transfer, curl_off_t offset, int origin) {
  if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<Transfer*>(transfer)->sent = static_cast<std::uint64_t>(offset);
  return CURL_SEEKFUNC_OK;
}

std::size_t Transfer::read(char* to, std::size_t room) {
  const std::uint64_t left = body_size() - std::min(sent, body_size());
  const std::size_t wanted = std::min<std::uint64_t>(room, left);
  if (wanted == 0) return 0;
  if (!request.body_file) {
    std::copy_n(request.body.data() + sent, wanted, to);
    sent += wanted;
    return wanted;
  }
  const FileSlice& file = *request.body_file;
  ssize_t got;
  do {
    got = pread(file.fd.get(), to, wanted, static_cast<off_t>(file.offset + sent));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) {
    failure = got < 0 ? error_from_errno("read the body of " + name_of(request), errno)
                      : Error{Code::kDataLoss, fmt::format("{}: the file of the body ended {} "
                                                           "bytes early",
                                                           name_of(request), left)};
    return CURL_READFUNC_ABORT;
  }
  sent += static_cast<std::uint64_t>(got);
  return static_cast<std::size_t>(got);
}

// Runs a callback of the caller; false, with `failure` set, when it refuses.
bool Transfer::called(const std::function<Result<void>()>& callback) {
  try {
    const Result<void> taken = callback();
    if (taken) return true;
    failure = taken.error();
  } catch (const std::exception& thrown) {
    failure = Error{Code::kInternal, fmt::format("{}: {}", name_of(request), thrown.what())};
  }
  return false;
}

bool Transfer::goes_on() {
  return called([this]() -> Result<void> {
    if (!request.cancelled()) return {};
    return Error{Code::kCancelled, name_of(request) + ": the transfer was stopped"};
  });
}

std::size_t Transfer::write(const char* from, std::size_t size) {
  if (request.on_body && response.status >= 200 && response.status < 300) {
    // Anything but size ends the transfer.
    return called([&] {
      return request.on_body(std::as_bytes(std::span{from, size}));
    })
               ? size
               : size + 1;
  }
  if (size > request.max_body_bytes - std::min(response.body.size(), request.max_body_bytes)) {
    failure =
        Error{Code::kResourceExhausted, fmt::format("{}: an answer of more than {} bytes",
                                                    name_of(request), request.max_body_bytes)};
    return size + 1;
  }
  response.body.append(from, size);
  return size;
}

std::size_t Transfer::header(std::string_view line) {
  const std::size_t size = line.size();
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {  // also after a "100 Continue"
    response = {};
    head_ended = false;
    const std::size_t blank = line.find(' ');
    if (blank != std::string_view::npos) {
      std::from_chars(line.data() + blank + 1, line.data() + line.size(), response.status);
    }
    return size;
  }
  if (line.empty() && !head_ended) {
    head_ended = true;
    if (request.on_head && response.status >= 200 && response.status < 300) {
      return called([&] { return request.on_head(response.status, response.headers); }) ? size
                                                                                        : size + 1;
    }
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size;
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ') || value.starts_with('\t')) value.remove_prefix(1);
  while (value.ends_with(' ') || value.ends_with('\t')) value.remove_suffix(1);
  if (response.headers.fields().size() == kMaxResponseHeaders) {
    failure = Error{Code::kResourceExhausted, fmt::format("{}: an answer of more than {} headers",
                                                          name_of(request), kMaxResponseHeaders)};
    return size + 1;
  }
  response.headers.add(std::string{line.substr(0, colon)}, std::string{value});
  return size;
}

Result<void> Transfer::prepare_headers() {
  const auto append = [&](const std::string& line) {
    curl_slist* longer = curl().slist_append(headers.get(), line.c_str());
    static_cast<void>(headers.release());
    headers.reset(longer);
  };
  for (const auto& [name, value] : request.headers.fields()) {
    if (!internal::valid_header(name, value)) {
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: the header '{}' holds characters that a header cannot",
                               name_of(request), percent_encode(name))};
    }
    if (equal_without_case(name, "content-length")) continue;
    append(value.empty() ? name + ";" : name + ": " + value);
  }
  // What curl would add by itself.
  for (const char* name : {"Accept", "Expect", "Content-Type"}) {
    if (!request.headers.find(name)) append(std::string{name} + ":");
  }
  return {};
}

Result<void> Transfer::prepare() {
  TRY(prepare_headers());
  CURL* const to = easy.get();
  const auto set = [to](CURLoption option, auto value) { curl().easy_setopt(to, option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // a proxy's answer is no head of ours
  set(CURLOPT_BUFFERSIZE, kBuffer);
  set(CURLOPT_UPLOAD_BUFFERSIZE, kBuffer);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_timeout.count()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()) * 1000);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_timeout.count()));
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_ERRORBUFFER, curl_message.data());
  set(CURLOPT_PRIVATE, static_cast<void*>(this));
  set(CURLOPT_WRITEFUNCTION, &on_write);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  if (is_loopback(request.url)) set(CURLOPT_PROXY, "");
  if (request.count_sends) {
    set(CURLOPT_VERBOSE, 1L);
    set(CURLOPT_DEBUGFUNCTION, &on_debug);
    set(CURLOPT_DEBUGDATA, static_cast<void*>(this));
  }
  if (request.cancelled) {
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &on_progress);
    set(CURLOPT_XFERINFODATA, static_cast<void*>(this));
  }
  const bool sends_body = body_size() > 0 || request.method == "PUT" || request.method == "POST" ||
                          request.method == "PATCH";
  if (sends_body) {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body_size()));
    set(CURLOPT_READFUNCTION, &on_read);
    set(CURLOPT_READDATA, static_cast<void*>(this));
    set(CURLOPT_SEEKFUNCTION, &on_seek);
    set(CURLOPT_SEEKDATA, static_cast<void*>(this));
  } else if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  }
  set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  return {};
}

Result<ClientResponse> Transfer::outcome(CURLcode code) {
  if (failure) return *std::move(failure);
  // curl takes a head that is cut off for an answer without a body.
  if (code == CURLE_OK && head_ended) {
    response.times_sent = times_sent;
    return std::move(response);
  }
  if (code == CURLE_OK) code = CURLE_PARTIAL_FILE;
  curl_off_t ready = 0;  // when the request could be sent; 0: never
  curl().easy_getinfo(easy.get(), CURLINFO_PRETRANSFER_TIME_T, &ready);
  const Retry again = ready == 0 || may_be_repeated(request.method) ? Retry::kYes : Retry::kNo;
  const std::string message =
      fmt::format("{}: {}", name_of(request),
                  curl_message[0] != '\0' ? curl_message.data() : curl().easy_strerror(code));
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return Error{ready == 0 ? Code::kUnavailable : Code::kDeadlineExceeded, message, again};
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
      return Error{Code::kUnavailable, message, again};
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return Error{Code::kInvalidArgument, message};
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return Error{Code::kFailedPrecondition, message};
    case CURLE_OUT_OF_MEMORY:
      return Error{Code::kResourceExhausted, message};
    default:
      return Error{Code::kIo, message};
  }
}

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
