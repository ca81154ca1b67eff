// What the server refuses, and what it does not wait for.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "http/server.h"
#include "http/server_test.h"
#include "http/testing.h"

namespace atelier::http {
namespace {

using std::chrono::seconds;
using testing::collecting;
using testing::echo;
using testing::FunctionHandler;
using testing::Peer;
using testing::started;
using testing::text;

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

}  // namespace
}  // namespace atelier::http
