#include "http/server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

#include "base/hash.h"
#include "http/testing.h"

namespace atelier::http {
namespace {

using std::chrono::seconds;
using testing::collecting;
using testing::FunctionHandler;
using testing::Peer;

Response text(std::string body, int status = 200) {
  Response response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

FunctionHandler echo() {
  return collecting([](const RequestHead& head, const std::string& body) {
    return text(head.method + " " + head.target + " " + body);
  });
}

Server started(Handler& handler, ServerOptions options = {}) {
  Result<Server> server = Server::start(options, handler);
  EXPECT_TRUE(server);
  return *std::move(server);
}

std::string pattern(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& c : bytes) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return bytes;
}

TEST(Server, AnswersRequestAfterRequestOnOneConnection) {
  FunctionHandler handler = echo();
  const Server server = started(handler);
  EXPECT_EQ(server.address(), "127.0.0.1");
  Peer peer{server.port()};
  EXPECT_EQ(peer.ask("GET /a?b=1 HTTP/1.1\r\nHost: h\r\n\r\n").body, "GET /a?b=1 ");
  EXPECT_EQ(peer.ask("PUT /c HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello").body,
            "PUT /c hello");
  const Peer::Answer last = peer.ask("GET /d HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_NE(last.head.find("Connection: close\r\n"), std::string::npos);
  EXPECT_NE(last.head.find("Date: "), std::string::npos);
  EXPECT_EQ(peer.read_to_end(), "");
}

TEST(Server, PipelinedRequestsAreAnsweredInOrder) {
  FunctionHandler handler = echo();
  const Server server = started(handler);
  Peer peer{server.port()};
  std::string all;
  for (int i = 0; i < 100; ++i) {
    const std::string body(static_cast<std::size_t>(i * 7), 'x');
    all += "POST /" + std::to_string(i) +
           " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
  }
  peer.send(all);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(peer.read_answer().body, "POST /" + std::to_string(i) + " " +
                                           std::string(static_cast<std::size_t>(i * 7), 'x'));
  }
}

TEST(Server, AClientThatClosedItsHalfGetsItsAnswer) {
  FunctionHandler handler = echo();
  const Server server = started(handler);
  Peer peer{server.port()};
  peer.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
  peer.half_close();
  EXPECT_EQ(peer.read_answer().body, "GET /a ");
  EXPECT_EQ(peer.read_to_end(), "");
}

TEST(Server, ChunkedBodiesAreDecodedHoweverTheyAreCut) {
  FunctionHandler handler = echo();
  const Server server = started(handler);
  const std::string request =
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\n";
  Peer peer{server.port()};
  EXPECT_EQ(peer.ask(request).body, "POST /c hello world");
  for (const char c : request) ASSERT_TRUE(peer.send({&c, 1}));
  EXPECT_EQ(peer.read_answer().body, "POST /c hello world");

  const std::string large = pattern(1'000'000);
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", large.size());
  EXPECT_EQ(peer.ask("POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" +
                     std::string{size} + large + "\r\n0\r\n\r\n")
                .body,
            "POST /c " + large);
  EXPECT_EQ(peer.ask("GET /d HTTP/1.1\r\nHost: h\r\n\r\n").body, "GET /d ");
}

// Counts what becomes of exchanges.
struct Fate {
  std::atomic<int> begun{0};
  std::atomic<int> finished{0};
  std::promise<void> destroyed;
};
class Watched final : public Exchange {
 public:
  explicit Watched(Fate& fate) : fate_(fate) { ++fate_.begun; }
  ~Watched() override { fate_.destroyed.set_value(); }
  bool on_body(std::span<const std::byte>) override { return true; }
  Response finish() override {
    ++fate_.finished;
    return {};
  }

 private:
  Fate& fate_;
};

TEST(Server, APeerThatVanishesInTheMidstOfABodyLeavesNothingFinished) {
  for (const char* head : {"Content-Length: 1000000", "Transfer-Encoding: chunked"}) {
    Fate fate;
    FunctionHandler handler{[&](const RequestHead&) { return std::make_unique<Watched>(fate); }};
    const Server server = started(handler);
    Peer peer{server.port()};
    peer.send("PUT / HTTP/1.1\r\nHost: h\r\n" + std::string{head} + "\r\n\r\n1000\r\nhello");
    peer.close();
    fate.destroyed.get_future().wait();
    EXPECT_EQ(fate.begun, 1);
    EXPECT_EQ(fate.finished, 0);
  }
}

TEST(Server, ABodyWithoutProgressIsCutAndItsExchangeDestroyed) {
  Fate fate;
  FunctionHandler handler{[&](const RequestHead&) { return std::make_unique<Watched>(fate); }};
  ServerOptions options;
  options.body_timeout = seconds{1};
  const Server server = started(handler, options);
  Peer peer{server.port()};
  EXPECT_EQ(peer.ask("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello").status, 408);
  fate.destroyed.get_future().wait();
  EXPECT_EQ(fate.finished, 0);
  EXPECT_EQ(peer.read_to_end(), "");
}

TEST(Server, ASlowHeadIsCutThoughItsBytesKeepComing) {
  FunctionHandler handler = echo();
  ServerOptions options;
  options.header_timeout = seconds{1};
  const Server server = started(handler, options);
  Peer idle{server.port()};
  Peer slow{server.port()};
  slow.send("GET / HTTP/1.1\r\n");
  std::thread drip{[&] {
    // As fast as the server answers to a drip of one byte: ends when it stops reading.
    const timeval pause{0, 50'000};
    setsockopt(slow.fd(), SOL_SOCKET, SO_RCVTIMEO, &pause, sizeof pause);
    char byte = 0;
    while (recv(slow.fd(), &byte, 1, MSG_PEEK) < 0 && slow.send("a")) {
    }
  }};
  drip.join();
  EXPECT_EQ(slow.read_answer().status, 408);
  EXPECT_EQ(idle.read_to_end(), "");  // nothing was asked, so nothing is said
}

TEST(Server, TooLargeAHeadIsRefused) {
  FunctionHandler handler = echo();
  const Server server = started(handler);
  Peer large{server.port()};
  const Peer::Answer answer =
      large.ask("GET / HTTP/1.1\r\nHost: h\r\nx: " + std::string(70'000, 'x') + "\r\n\r\n");
  EXPECT_EQ(answer.status, 431);
  EXPECT_NE(answer.body.find("65536"), std::string::npos);
  Peer target{server.port()};
  EXPECT_EQ(target.ask("GET /" + std::string(70'000, 'x') + " HTTP/1.1\r\nHost: h\r\n\r\n").status,
            431);
  Peer many{server.port()};
  std::string headers;
  for (int i = 0; i < 201; ++i) headers += "a:b\r\n";
  EXPECT_EQ(many.ask("GET / HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n").status, 431);
  Peer legal{server.port()};
  EXPECT_EQ(
      legal.ask("GET / HTTP/1.1\r\nHost: h\r\nx: " + std::string(60'000, 'x') + "\r\n\r\n").status,
      200);
}

TEST(Server, AnOversizedBodyIsRefusedBeforeItIsRead) {
  std::atomic<int> begun{0};
  FunctionHandler handler{[&](const RequestHead&) {
    ++begun;
    return answer(text("never"));
  }};
  ServerOptions options;
  options.max_body_bytes = 1000;
  const Server server = started(handler, options);
  Peer peer{server.port()};
  const Peer::Answer refused =
      peer.ask("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_EQ(refused.status, 413);
  EXPECT_NE(refused.body.find("1000"), std::string::npos);
  EXPECT_EQ(begun, 0);
}

TEST(Server, AnOversizedChunkedBodyIsRefusedWhenItPassesTheLimit) {
  FunctionHandler handler = echo();
  ServerOptions options;
  options.max_body_bytes = 1000;
  const Server server = started(handler, options);
  Peer peer{server.port()};
  EXPECT_EQ(peer.ask("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
                     std::string(1001, 'x'))
                .status,
            413);
}

TEST(Server, MalformedRequestsGetA400AndNotSilence) {
  FunctionHandler handler = echo();
  const Server server = started(handler);
  for (const char* request : {
           "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5x\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
           "GET / HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
           "GET nothing HTTP/1.1\r\nHost: h\r\n\r\n",
           "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
           "GET /\r\n\r\n",
           "\x16\x03\x01\x02rubbish\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: h\r\nb ad: x\r\n\r\n",
           "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
       }) {
    Peer peer{server.port()};
    EXPECT_EQ(peer.ask(request).status, 400) << request;
    EXPECT_EQ(peer.read_to_end(), "") << request;
  }
  Peer peer{server.port()};
  EXPECT_EQ(peer.ask("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n").status, 501);
  Peer other{server.port()};
  EXPECT_EQ(other.ask("PUT / HTTP/1.1\r\nHost: h\r\nExpect: miracles\r\n\r\n").status, 417);
}

TEST(Server, InvitesABodyOnlyIfTheExchangeWantsIt) {
  FunctionHandler handler{[](const RequestHead& head) -> std::unique_ptr<Exchange> {
    if (head.target == "/no") return answer(text("not wanted", 403));
    return std::make_unique<testing::Collect>(
        head, [](const RequestHead&, const std::string& body) { return text(body); });
  }};
  const Server server = started(handler);
  const std::string rest =
      " HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
  Peer yes{server.port()};
  yes.send("PUT /yes" + rest);
  EXPECT_EQ(yes.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(yes.ask("hello").body, "hello");
  EXPECT_EQ(yes.ask("PUT /yes" + rest + "again").body, "again");  // came with the head
  Peer no{server.port()};
  EXPECT_EQ(no.ask("PUT /no" + rest).status, 403);
  EXPECT_EQ(no.read_to_end(), "");
}

TEST(Server, AnUnwantedBodyIsDrainedWhenSmallAndEndsTheConnectionWhenLarge) {
  FunctionHandler handler{[](const RequestHead&) { return answer(text("no", 403)); }};
  const Server server = started(handler);
  Peer peer{server.port()};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(peer.ask("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" +
                       std::string(100'000, 'x'))
                  .status,
              403);
  }
  // The answer arrives although the client sends all of its body before it looks.
  const std::string large(8'000'000, 'x');
  const Peer::Answer refused =
      peer.ask("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 8000000\r\n\r\n" + large);
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(refused.head.find("Connection: close"), std::string::npos);
}

class StopsEarly final : public Exchange {
 public:
  bool on_body(std::span<const std::byte> piece) override {
    size_ += piece.size();
    return false;
  }
  Response finish() override { return text(std::to_string(size_), 400); }

 private:
  std::size_t size_ = 0;
};

TEST(Server, AnExchangeThatHasEnoughAnswersAtOnce) {
  FunctionHandler handler{[](const RequestHead&) { return std::make_unique<StopsEarly>(); }};
  const Server server = started(handler);
  Peer peer{server.port()};
  const Peer::Answer refused =
      peer.ask("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n" +
               std::string(300'000, 'x'));
  EXPECT_EQ(refused.status, 400);
  EXPECT_LE(std::stoul(refused.body), 120'000u);
}

TEST(Server, LargeBodiesComeInLargePieces) {
  struct Pieces final : Exchange {
    std::size_t total = 0;
    std::size_t smallest = SIZE_MAX;
    std::size_t expected = 0;
    Hasher hasher{Digest::kSha256};
    bool on_body(std::span<const std::byte> piece) override {
      hasher.update(piece);
      total += piece.size();
      if (total < expected) smallest = std::min(smallest, piece.size());
      return true;
    }
    Response finish() override {
      return text(to_hex(hasher.finish()) + (smallest >= 65536 ? " large" : " small"));
    }
  };
  FunctionHandler handler{[](const RequestHead& head) {
    auto pieces = std::make_unique<Pieces>();
    pieces->expected = *head.content_length;
    return pieces;
  }};
  const Server server = started(handler);
  const std::string body = pattern(30'000'000);
  Peer peer{server.port()};
  peer.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\n");
  for (std::size_t at = 0; at < body.size(); at += 10'000) {
    ASSERT_TRUE(peer.send(std::string_view{body}.substr(at, 10'000)));
  }
  EXPECT_EQ(peer.read_answer().body, sha256_hex(body) + " large");
}

TEST(Server, FilesAreSentWithTheirRanges) {
  const TempFolder folder = *TempFolder::create();
  const auto path = folder.path() / "file";
  const std::string bytes = pattern(20'000'000);
  ASSERT_TRUE(write_file_durably(path, bytes));
  FunctionHandler handler = collecting([&](const RequestHead& head, const std::string&) {
    const auto pairs = *parse_query(head.query());
    Response response;
    response.status = 206;
    response.body = FileSlice{*open_file(path, O_RDONLY), std::stoull(pairs[0].second),
                              std::stoull(pairs[1].second)};
    return response;
  });
  const Server server = started(handler);
  Peer peer{server.port()};
  const std::pair<std::size_t, std::size_t> ranges[] = {
      {0, bytes.size()}, {0, 0}, {1, 1}, {12'345, 7'654'321}, {bytes.size() - 1, 1}};
  for (const auto& [offset, length] : ranges) {
    const Peer::Answer got =
        peer.ask("GET /?o=" + std::to_string(offset) + "&l=" + std::to_string(length) +
                 " HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(got.status, 206);
    EXPECT_TRUE(got.body == std::string_view{bytes}.substr(offset, length)) << offset;
  }
  // A file shorter than promised ends the connection: never a wrong byte, never a silent end.
  const Peer::Answer cut = peer.ask("GET /?o=19999990&l=20 HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(cut.head.find("Content-Length: 20\r\n"), std::string::npos);
  EXPECT_EQ(cut.body.size(), 10u);
}

TEST(Server, APeerThatLeavesDuringAFileHarmsNobody) {
  const TempFolder folder = *TempFolder::create();
  const auto path = folder.path() / "file";
  ASSERT_TRUE(write_file_durably(path, pattern(20'000'000)));
  FunctionHandler handler = collecting([&](const RequestHead& head, const std::string&) {
    if (head.target == "/alive") return text("yes");
    Response response;
    response.body = FileSlice{*open_file(path, O_RDONLY), 0, 20'000'000};
    return response;
  });
  const Server server = started(handler);
  for (int i = 0; i < 10; ++i) {
    Peer peer{server.port()};
    peer.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    peer.read_exactly(1000);
    peer.close();
  }
  EXPECT_EQ(Peer{server.port()}.ask("GET /alive HTTP/1.1\r\nHost: h\r\n\r\n").body, "yes");
}

TEST(Server, HeadIsAnsweredWithALengthAndNoBody) {
  FunctionHandler handler = collecting([](const RequestHead& head, const std::string&) {
    Response response = text("four");
    if (head.target == "/big") {
      response.body = "";
      response.head_content_length = 5'000'000'000;
    }
    if (head.target == "/none") response.status = 304;
    return response;
  });
  const Server server = started(handler);
  Peer peer{server.port()};
  EXPECT_NE(peer.ask("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n").head.find("Content-Length: 4\r\n"),
            std::string::npos);
  EXPECT_NE(
      peer.ask("HEAD /big HTTP/1.1\r\nHost: h\r\n\r\n").head.find("Content-Length: 5000000000\r\n"),
      std::string::npos);
  EXPECT_EQ(peer.ask("GET /none HTTP/1.1\r\nHost: h\r\n\r\n").head.find("Content-Length"),
            std::string::npos);
  EXPECT_EQ(peer.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").body, "four");
}

TEST(Server, AResponseCannotBeSplitAndAThrowingHandlerIsA500) {
  FunctionHandler handler = collecting([](const RequestHead& head, const std::string&) {
    if (head.target == "/throw") throw std::runtime_error("a bug");
    Response response = text("x");
    if (head.target == "/value") response.headers.add("x-a", "b\r\nSet-Cookie: c=d");
    if (head.target == "/name") response.headers.add("x-a: b\r\nx-c", "d");
    if (head.target == "/status") response.status = 42;
    // What the server decides itself is not taken from a handler.
    response.headers.add("Content-Length", "999");
    response.headers.add("Transfer-Encoding", "chunked");
    return response;
  });
  const Server server = started(handler);
  for (const char* path : {"/value", "/name", "/status", "/throw"}) {
    Peer peer{server.port()};
    const Peer::Answer got = peer.ask("GET " + std::string{path} + " HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(got.status, 500) << path;
    EXPECT_EQ(got.head.find("Set-Cookie"), std::string::npos);
  }
  Peer peer{server.port()};
  EXPECT_EQ(peer.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").body, "x");
}

TEST(Server, SpeaksToHttp10Clients) {
  FunctionHandler handler = echo();
  const Server server = started(handler);
  Peer once{server.port()};
  EXPECT_EQ(once.ask("GET / HTTP/1.0\r\n\r\n").body, "GET / ");
  EXPECT_EQ(once.read_to_end(), "");
  Peer kept{server.port()};
  const std::string request = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
  EXPECT_NE(kept.ask(request).head.find("Connection: keep-alive"), std::string::npos);
  EXPECT_EQ(kept.ask(request).status, 200);
  Peer proxied{server.port()};
  EXPECT_EQ(proxied.ask("GET http://h:1/x?y HTTP/1.1\r\nHost: h:1\r\n\r\n").body, "GET /x?y ");
}

TEST(Server, ServesAThousandConnectionsAtOnce) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &files);
  FunctionHandler handler = echo();
  for (const unsigned io_threads : {1u, 2u}) {
    ServerOptions options;
    options.io_threads = io_threads;
    const Server server = started(handler, options);
    std::vector<std::unique_ptr<Peer>> peers;
    for (int i = 0; i < 1000; ++i) peers.push_back(std::make_unique<Peer>(server.port()));
    for (int round = 0; round < 3; ++round) {
      for (const auto& peer : peers) {
        ASSERT_TRUE(peer->send("PUT /r HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"));
      }
      for (const auto& peer : peers) ASSERT_EQ(peer->read_answer().body, "PUT /r hello");
    }
  }
}

TEST(Server, AConnectionTooManyWaitsUntilAnIdleOneIsClosed) {
  FunctionHandler handler = echo();
  ServerOptions options;
  options.max_connections = 2;
  const Server server = started(handler, options);
  const std::string request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
  Peer first{server.port()};
  Peer second{server.port()};
  EXPECT_EQ(first.ask(request).status, 200);
  EXPECT_EQ(second.ask(request).status, 200);
  Peer third{server.port()};
  EXPECT_EQ(third.ask(request).status, 200);  // after the idle ones were closed
  EXPECT_EQ(first.read_to_end(), "");
}

TEST(Server, StopLetsTheExchangeUnderWayEnd) {
  std::promise<void> entered;
  std::promise<void> release;
  FunctionHandler handler = collecting([&](const RequestHead&, const std::string&) {
    entered.set_value();
    release.get_future().wait();
    return text("done");
  });
  Server server = started(handler);
  Peer idle{server.port()};
  Peer busy{server.port()};
  busy.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  entered.get_future().wait();
  std::thread stopper{[&] { server.stop(); }};
  EXPECT_EQ(idle.read_to_end(), "");  // at once: stop() has begun
  release.set_value();
  const Peer::Answer last = busy.read_answer();
  EXPECT_EQ(last.body, "done");
  EXPECT_NE(last.head.find("Connection: close"), std::string::npos);
  stopper.join();
  EXPECT_FALSE(Peer{server.port()}.connected());
}

TEST(Server, StopCutsABodyThatDoesNotEndWithinTheDrain) {
  Fate fate;
  FunctionHandler handler{[&](const RequestHead&) { return std::make_unique<Watched>(fate); }};
  ServerOptions options;
  options.drain = seconds{0};
  Server server = started(handler, options);
  Peer peer{server.port()};
  peer.send("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n");
  EXPECT_NE(peer.read_until("\r\n\r\n"), "");
  server.stop();
  EXPECT_EQ(fate.finished, 0);
  EXPECT_EQ(fate.destroyed.get_future().wait_for(seconds{0}), std::future_status::ready);
}

TEST(Server, ListensOnIPv6AndNamesWhatItCannotListenOn) {
  FunctionHandler handler = echo();
  ServerOptions options;
  options.listen = "[::1]:0";
  if (Result<Server> server = Server::start(options, handler)) {
    EXPECT_EQ(server->address(), "::1");
  } else {
    EXPECT_NE(server.error().message.find("[::1]:0"), std::string::npos);  // a host without IPv6
  }
  for (const char* listen : {"", "8080", "127.0.0.1", "127.0.0.1:99999", "::1:80", "nohost:1",
                             "127.0.0.1:", "[::1]", "127.0.0.1:1x"}) {
    options.listen = listen;
    const Result<Server> server = Server::start(options, handler);
    ASSERT_FALSE(server) << listen;
    EXPECT_EQ(server.error().code, Code::kInvalidArgument) << listen;
  }
  const Server first = started(handler);
  options.listen = "127.0.0.1:" + std::to_string(first.port());
  const Result<Server> second = Server::start(options, handler);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find(options.listen), std::string::npos);
}

}  // namespace
}  // namespace atelier::http
