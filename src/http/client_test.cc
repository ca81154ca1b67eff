#include "http/client.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "http/server.h"
#include "http/testing.h"

namespace atelier::http {
namespace {

using std::chrono::seconds;
using testing::collecting;
using testing::FunctionHandler;

Response echo(const RequestHead& head, const std::string& body) {
  Response response;
  if (head.target.starts_with("/status/")) response.status = std::stoi(head.target.substr(8));
  if (response.status == 302) response.headers.add("Location", "/elsewhere");
  for (const auto& [name, value] : head.headers.fields()) {
    response.headers.add("x-got-" + name, value);
  }
  response.headers.add("x-method", head.method);
  response.headers.add("x-target", head.target);
  response.headers.add("x-peer", head.peer);
  response.body = body.size() > 1000 ? sha256_hex(body) : body;
  return response;
}

struct WithServer : ::testing::Test {
  FunctionHandler handler = collecting(echo);
  Server server = *Server::start({}, handler);
  Client client;
  std::string base = "http://127.0.0.1:" + std::to_string(server.port());

  std::string header(const ClientResponse& response, std::string_view name) {
    return std::string{response.headers.find(name).value_or("(none)")};
  }
};
using HttpClient = WithServer;

ClientRequest request(std::string method, std::string url, std::string body = {}) {
  ClientRequest made;
  made.method = std::move(method);
  made.url = std::move(url);
  made.body = std::move(body);
  return made;
}

TEST_F(HttpClient, EveryMethodIsSentAsItIsWithItsBody) {
  for (const char* method : {"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"}) {
    for (const char* body : {"", "hello"}) {
      const ClientResponse got = *client.send(request(method, base + "/a", body));
      EXPECT_EQ(got.status, 200);
      EXPECT_EQ(header(got, "x-method"), method);
      EXPECT_EQ(got.body, body);
    }
  }
  const ClientResponse head = *client.send(request("HEAD", base + "/a"));
  EXPECT_EQ(header(head, "Content-Length"), "0");
  EXPECT_EQ(head.body, "");
}

TEST_F(HttpClient, TheTargetGoesOverTheWireByteForByte) {
  for (const char* target : {"/b/./x/../y//z", "/b/%2e%2E/k=v+%2B", "/?uploads", "/?a=&b=%20",
                             "/b/%C3%A9%c3%a9?x=/", "/b/~'()*!$&,;:@"}) {
    EXPECT_EQ(header(*client.send(request("GET", base + target)), "x-target"), target);
  }
}

TEST_F(HttpClient, HeadersAreThoseOfTheCallerAndNoOthers) {
  ClientRequest made = request("PUT", base + "/", "x");
  made.headers = {{"Host", "other:1"}, {"x-empty", ""}, {"Content-Length", "99"}, {"X-A", "b"}};
  const ClientResponse got = *client.send(std::move(made));
  EXPECT_EQ(header(got, "x-got-host"), "other:1");
  EXPECT_EQ(header(got, "x-got-x-empty"), "");
  EXPECT_EQ(header(got, "x-got-x-a"), "b");
  EXPECT_EQ(header(got, "x-got-content-length"), "1");
  for (const char* name : {"accept", "expect", "content-type", "user-agent"}) {
    EXPECT_FALSE(got.headers.find("x-got-" + std::string{name})) << name;
  }
  made = request("GET", base + "/");
  made.headers = {{"x-a", "b\r\nx-c: d"}};
  EXPECT_EQ(client.send(std::move(made)).error().code, Code::kInvalidArgument);
}

TEST_F(HttpClient, AConnectionIsUsedAgain) {
  const std::string first = header(*client.send(request("GET", base + "/")), "x-peer");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(header(*client.send(request("PUT", base + "/", "x")), "x-peer"), first);
  }
}

TEST_F(HttpClient, RedirectsAndErrorsAreAnswers) {
  for (const int status : {204, 302, 404, 500, 503}) {
    const ClientResponse got =
        *client.send(request("GET", base + "/status/" + std::to_string(status)));
    EXPECT_EQ(got.status, status);
    EXPECT_EQ(header(got, "x-target"), "/status/" + std::to_string(status));
  }
}

TEST_F(HttpClient, ABodyFromAFileIsTheSliceThatWasAskedFor) {
  const TempFolder folder = *TempFolder::create();
  const std::string bytes(5'000'000, 'q');
  ASSERT_TRUE(write_file_durably(folder.path() / "f", "head" + bytes + "tail"));
  ClientRequest made = request("PUT", base + "/");
  made.body_file = FileSlice{*open_file(folder.path() / "f", O_RDONLY), 4, bytes.size()};
  EXPECT_EQ(client.send(std::move(made))->body, sha256_hex(bytes));

  made = request("PUT", base + "/");
  made.body_file = FileSlice{*open_file(folder.path() / "f", O_RDONLY), 4, bytes.size() + 5};
  EXPECT_EQ(client.send(std::move(made)).error().code, Code::kDataLoss);
}

TEST_F(HttpClient, ABodyCanBeTakenInPiecesAndRefused) {
  const std::string bytes(900, 'z');
  std::string taken;
  ClientRequest made = request("PUT", base + "/", bytes);
  made.on_body = [&](std::span<const std::byte> piece) -> Result<void> {
    taken.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return {};
  };
  int heads = 0;
  made.on_head = [&](int status, const Headers& headers) -> Result<void> {
    EXPECT_EQ(status, 200);
    EXPECT_EQ(headers.find("x-method"), "PUT");
    EXPECT_EQ(taken, "");
    ++heads;
    return {};
  };
  EXPECT_EQ(client.send(std::move(made))->body, "");
  EXPECT_EQ(taken, bytes);
  EXPECT_EQ(heads, 1);

  made = request("PUT", base + "/status/404", "why");  // an error's body is collected
  made.on_body = [](auto) -> Result<void> { return Error{Code::kInternal, "not called"}; };
  EXPECT_EQ(client.send(std::move(made))->body, "why");

  made = request("PUT", base + "/", "x");
  made.on_body = [](auto) -> Result<void> { return Error{Code::kResourceExhausted, "disk full"}; };
  EXPECT_EQ(client.send(std::move(made)).error().message, "disk full");

  made = request("PUT", base + "/", bytes);
  made.on_head = [](int, const Headers&) -> Result<void> {
    return Error{Code::kDataLoss, "no checksum"};
  };
  EXPECT_EQ(client.send(std::move(made)).error().code, Code::kDataLoss);

  made = request("PUT", base + "/", bytes);
  made.max_body_bytes = 899;
  EXPECT_EQ(client.send(std::move(made)).error().code, Code::kResourceExhausted);
}

TEST_F(HttpClient, ManyRequestsFromManyThreadsShareFewConnections) {
  for (const unsigned of_the_client : {1u, 3u, 9u}) {
    Client narrow{{.max_connections = 4, .threads = of_the_client}};
    std::mutex mutex;
    std::set<std::string> peers;
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 50; ++i) {
          const std::string body = std::to_string(t * 1000 + i);
          const Result<ClientResponse> got = narrow.send(request("PUT", base + "/", body));
          if (!got || got->body != body) continue;
          ++right;
          const std::lock_guard lock{mutex};
          peers.insert(header(*got, "x-peer"));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, 400);
    EXPECT_LE(peers.size(), 4u);
  }
}

TEST_F(HttpClient, ABodyThatIsTakenSlowlyDoesNotHoldUpTheOtherThread) {
  Client two{{.max_connections = 8, .threads = 2}};
  std::promise<void> other;
  std::atomic<int> answers{0};
  std::promise<void> all;
  const auto send = [&](std::function<Result<void>(std::span<const std::byte>)> on_body) {
    ClientRequest made = request("PUT", base + "/", "x");
    made.on_body = std::move(on_body);
    two.send_async(std::move(made), [&](const Result<ClientResponse>& got) {
      EXPECT_TRUE(got);
      if (++answers == 3) all.set_value();
    });
  };
  send([&](auto) -> Result<void> {
    other.get_future().wait();
    return {};
  });
  send([](auto) -> Result<void> { return {}; });
  send([&](auto) -> Result<void> {
    other.set_value();
    return {};
  });
  all.get_future().wait();
}

TEST(HttpClientErrors, NoConnectionIsUnavailableAndMayBeTriedAgain) {
  Client client;
  std::uint16_t port = 0;
  {
    FunctionHandler handler = collecting(echo);
    port = Server::start({}, handler)->port();
  }
  for (const char* method : {"GET", "POST"}) {
    const Error error =
        client.send(request(method, "http://127.0.0.1:" + std::to_string(port) + "/k?secret=1"))
            .error();
    EXPECT_EQ(error.code, Code::kUnavailable);
    EXPECT_EQ(error.retry, Retry::kYes);
    EXPECT_NE(error.message.find("/k"), std::string::npos);
    EXPECT_EQ(error.message.find("secret"), std::string::npos);
  }
  EXPECT_EQ(client.send(request("GET", "file:///etc/passwd")).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client.send(request("GET", "http://")).error().code, Code::kInvalidArgument);
}

// A listening socket whose other side is played by the test.
struct Stub {
  UniqueFd listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string url;
  Stub() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size);
    listen(listener.get(), 16);
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
  }
  // Takes one connection, reads the head of a request, says `text` and closes.
  std::thread say(std::string text) const {
    return std::thread{[this, text = std::move(text)] {
      const UniqueFd peer{accept(listener.get(), nullptr, nullptr)};
      char scrap[4096];
      static_cast<void>(recv(peer.get(), scrap, sizeof scrap, 0));
      static_cast<void>(send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL));
    }};
  }
};

TEST(HttpClientErrors, ABrokenAnswerIsAnErrorAndNeverAShortBody) {
  const Stub stub;
  Client client;
  for (const char* text :
       {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    for (const auto& [method, again] : {std::pair{"GET", Retry::kYes}, {"POST", Retry::kNo}}) {
      std::thread server = stub.say(text);
      const Result<ClientResponse> got = client.send(request(method, stub.url));
      server.join();
      ASSERT_FALSE(got) << text;
      EXPECT_EQ(got.error().code, Code::kUnavailable) << text;
      EXPECT_EQ(got.error().retry, again) << text;
    }
  }
}

TEST(HttpClientErrors, AServerThatSaysNothingIsGivenUp) {
  const Stub stub;  // accepts in its backlog, and is silent
  Client client;
  ClientRequest stalled = request("GET", stub.url);
  stalled.stall_timeout = seconds{1};
  EXPECT_EQ(client.send(std::move(stalled)).error().code, Code::kDeadlineExceeded);
  ClientRequest slow = request("POST", stub.url);
  slow.timeout = seconds{1};
  const Error error = client.send(std::move(slow)).error();
  EXPECT_EQ(error.code, Code::kDeadlineExceeded);
  EXPECT_EQ(error.retry, Retry::kNo);
}

TEST(HttpClientErrors, ATransferInWhichNothingMovesIsCancelledWhenAsked) {
  const Stub stub;
  Client client;
  std::atomic<int> asked{0};
  for (const char* method : {"GET", "PUT"}) {
    ClientRequest stalled = request(method, stub.url);
    if (stalled.method == "PUT") stalled.body = std::string(std::size_t{64} << 20, 'x');
    stalled.cancelled = [&] { return ++asked % 3 == 0; };
    const Error error = client.send(std::move(stalled)).error();
    EXPECT_EQ(error.code, Code::kCancelled) << error.message;
  }
}

TEST(HttpClientErrors, DestructionCancelsWhatIsUnderWay) {
  const Stub stub;
  for (const unsigned threads : {1u, 2u}) {
    std::atomic<int> cancelled{0};
    {
      Client client{{.max_connections = 2, .threads = threads}};
      for (int i = 0; i < 5; ++i) {
        client.send_async(request("GET", stub.url), [&](const Result<ClientResponse>& got) {
          if (!got && got.error().code == Code::kCancelled) ++cancelled;
        });
      }
    }
    EXPECT_EQ(cancelled, 5);
  }
}

}  // namespace
}  // namespace atelier::http
