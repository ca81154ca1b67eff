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
#include "http/server_test.h"
#include "http/testing.h"

namespace atelier::http {
namespace {

using std::chrono::seconds;
using testing::collecting;
using testing::echo;
using testing::FunctionHandler;
using testing::pattern;
using testing::Peer;
using testing::started;
using testing::text;

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
