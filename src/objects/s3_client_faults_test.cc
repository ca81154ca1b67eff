// The client against a server that misbehaves: every answer of the embedded S3 passes through a
// hand that may spoil it.
#include "objects/s3_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>
#include <vector>

#include "objects/testing.h"

namespace atelier::objects {
namespace {

namespace fs = std::filesystem;

// Asked with each answer and its number; changes it.
using Spoil = std::function<void(const http::RequestHead&, int, http::Response&)>;

class SpoiledExchange final : public http::Exchange {
 public:
  SpoiledExchange(std::unique_ptr<http::Exchange> inner, http::RequestHead head, int number,
                  const Spoil& spoil)
      : inner_(std::move(inner)), head_(std::move(head)), number_(number), spoil_(spoil) {}
  [[nodiscard]] bool wants_body() const override { return inner_->wants_body(); }
  bool on_body(std::span<const std::byte> piece) override { return inner_->on_body(piece); }
  http::Response finish() override {
    http::Response response = inner_->finish();
    spoil_(head_, number_, response);
    return response;
  }

 private:
  std::unique_ptr<http::Exchange> inner_;
  http::RequestHead head_;
  int number_;
  const Spoil& spoil_;
};

class SpoilingHandler final : public http::Handler {
 public:
  explicit SpoilingHandler(http::Handler& inner) : inner_(inner) {}
  std::unique_ptr<http::Exchange> begin(const http::RequestHead& head) override {
    return std::make_unique<SpoiledExchange>(inner_.begin(head), head, ++requests, spoil);
  }
  Spoil spoil = [](const http::RequestHead&, int, http::Response&) {};
  std::atomic<int> requests = 0;

 private:
  http::Handler& inner_;
};

class S3ClientTest : public ::testing::Test {
 protected:
  S3ClientTest() {
    EXPECT_TRUE(store_->create_bucket("bucket"));
    EXPECT_TRUE(store_->put("bucket", "small", small_, {}));
    EXPECT_TRUE(store_->put("bucket", "large", large_, {}));
    handler_.requests = 0;
  }
  Result<void> download(const std::string& key) {
    const ObjectInfo info = store_->head("bucket", key).value();
    handler_.requests = 0;
    return store_->download_many("bucket", {{key, info.size, info.etag, path_}}, {});
  }

  const std::string small_ = "a small object";
  const std::string large_ = std::string(5 << 20, 'l');
  TempFolder folder_ = *TempFolder::create();
  const fs::path path_ = folder_.path() / "down/file";
  std::unique_ptr<S3Service> service_ =
      S3Service::open(folder_.path() / "store", system_clock(), "us-west-2").value();
  testing::S3Handler s3_{*service_, system_clock()};
  SpoilingHandler handler_{s3_};
  http::Server server_ = http::Server::start({}, handler_).value();
  std::unique_ptr<ObjectStore> store_ =
      make_s3_client({.url = "http://127.0.0.1:" + std::to_string(server_.port()),
                      .credentials = testing::test_credentials()},
                     {.max_connections = 4, .attempts = 3});
};

void fail_with(http::Response& response, int status, const std::string& code) {
  response = {};
  response.status = status;
  response.body = "<Error><Code>" + code + "</Code><Message>spoiled</Message></Error>";
}

TEST_F(S3ClientTest, TriesAgainWhatMayWorkLater) {
  handler_.spoil = [](const http::RequestHead&, int number, http::Response& response) {
    if (number <= 2) fail_with(response, 503, "SlowDown");
  };
  EXPECT_EQ(store_->get_bytes("bucket", "small", 100).value(), small_);
  EXPECT_EQ(handler_.requests, 3);
  handler_.requests = 0;
  EXPECT_TRUE(store_->put("bucket", "other", "x", {}));
  EXPECT_EQ(handler_.requests, 3);
  handler_.requests = 0;
  EXPECT_TRUE(store_->remove_many("bucket", {"other"}));
  EXPECT_EQ(handler_.requests, 3);
}

// "Full jitter": anything up to a bound that doubles, so that clients who failed together do not
// come back together.
TEST_F(S3ClientTest, PausesAreDrawnUpToABoundThatDoubles) {
  handler_.spoil = [](const http::RequestHead&, int, http::Response& response) {
    fail_with(response, 503, "SlowDown");
  };
  constexpr std::size_t kTries = 12;
  constexpr int kClients = 20;
  std::vector<std::vector<double>> pauses(kClients);
  for (std::vector<double>& own : pauses) {
    const auto client = make_s3_client(
        {.url = "http://127.0.0.1:" + std::to_string(server_.port()),
         .credentials = testing::test_credentials()},
        {.attempts = kTries, .sleep = [&](auto pause) { own.push_back(pause.count()); }});
    EXPECT_FALSE(client->head("bucket", "small"));
    ASSERT_EQ(own.size(), kTries - 1);
  }
  double bound = 50;
  for (std::size_t i = 0; i < kTries - 1; ++i, bound = std::min(bound * 2, 5000.0)) {
    std::set<double> drawn;
    double longest = 0;
    for (const std::vector<double>& own : pauses) {
      EXPECT_GE(own[i], 0);
      EXPECT_LE(own[i], bound) << "pause " << i;
      drawn.insert(own[i]);
      longest = std::max(longest, own[i]);
    }
    EXPECT_EQ(drawn.size(), std::size_t{kClients}) << "clients that wait equally long";
    EXPECT_GT(longest, bound / 4) << "pause " << i;  // missed once in 4^20
  }
}

// Twenty minutes are more than a signature may be off.
TEST_F(S3ClientTest, AClockThatIsWrongIsCorrectedByTheServersAndOnce) {
  class WrongClock final : public Clock {
   public:
    explicit WrongClock(std::chrono::minutes off) : off_(off) {}
    [[nodiscard]] Time now() const override { return system_clock().now() + off_; }
    [[nodiscard]] std::chrono::steady_clock::time_point steady() const override {
      return system_clock().steady();
    }

   private:
    std::chrono::minutes off_;
  };
  for (const int minutes : {20, -20}) {
    const WrongClock clock{std::chrono::minutes{minutes}};
    const auto client = make_s3_client({.url = "http://127.0.0.1:" + std::to_string(server_.port()),
                                        .credentials = testing::test_credentials()},
                                       {.attempts = 3, .clock = &clock});
    handler_.requests = 0;
    const auto bytes = client->get_bytes("bucket", "small", 100);
    ASSERT_TRUE(bytes) << bytes.error().message;
    EXPECT_EQ(*bytes, small_);
    EXPECT_EQ(handler_.requests, 2);
    EXPECT_TRUE(client->head("bucket", "small"));
    EXPECT_EQ(handler_.requests, 3);
  }
}

TEST_F(S3ClientTest, GivesUpAfterItsAttemptsWithTheServersWords) {
  handler_.spoil = [](const http::RequestHead&, int, http::Response& response) {
    fail_with(response, 500, "InternalError");
  };
  const auto failed = store_->get_bytes("bucket", "small", 100);
  ASSERT_FALSE(failed);
  EXPECT_EQ(handler_.requests, 3);
  EXPECT_EQ(failed.error().code, Code::kUnavailable);
  EXPECT_NE(failed.error().message.find("InternalError: spoiled"), std::string::npos)
      << failed.error().message;
  EXPECT_NE(failed.error().message.find("s3://bucket/small"), std::string::npos)
      << failed.error().message;
}

TEST_F(S3ClientTest, DoesNotTryAgainWhatIsRefused) {
  handler_.spoil = [](const http::RequestHead&, int, http::Response& response) {
    fail_with(response, 403, "AccessDenied");
  };
  const auto refused = store_->head("bucket", "small");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
  EXPECT_EQ(handler_.requests, 1);
}

TEST_F(S3ClientTest, WrongBytesAreFetchedAgainAndNeverBecomeAFile) {
  for (const char* key : {"small", "large"}) {
    int spoiled = 1;
    handler_.spoil = [&](const http::RequestHead& head, int number, http::Response& response) {
      if (head.method == "GET" && number <= spoiled) {
        const std::size_t size = head.path() == "/bucket/small" ? small_.size() : large_.size();
        response.body = std::string(size, '?');
      }
    };
    const Result<void> done = download(key);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_TRUE(*read_file(path_) == (key == std::string{"small"} ? small_ : large_));
    fs::remove(path_);
    spoiled = 100;
    const Result<void> failed = download(key);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, Code::kDataLoss) << failed.error().message;
    EXPECT_TRUE(fs::is_empty(path_.parent_path())) << "neither a file nor a part of one";
  }
}

TEST_F(S3ClientTest, AShortBodyIsAnErrorEvenWhenTheServerCallsItWhole) {
  handler_.spoil = [&](const http::RequestHead& head, int, http::Response& response) {
    if (head.method == "GET") response.body = small_.substr(0, 5);
  };
  const auto failed = store_->get_bytes("bucket", "small", 100);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kDataLoss) << failed.error().message;
}

TEST_F(S3ClientTest, ACopyThatFailsUnderStatus200IsTriedAgain) {
  handler_.spoil = [](const http::RequestHead&, int number, http::Response& response) {
    if (number == 1)
      response.body =
          std::string{"<Error><Code>InternalError</Code><Message>late</Message></Error>"};
  };
  EXPECT_TRUE(store_->copy("bucket", "small", "bucket", "copy"));
  EXPECT_EQ(handler_.requests, 2);
}

TEST_F(S3ClientTest, AServerThatGotOtherBytesIsFoundOut) {
  handler_.spoil = [](const http::RequestHead& head, int, http::Response& response) {
    if (head.method == "PUT") response.headers.set("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=");
  };
  const auto failed = store_->put("bucket", "key", "sent", {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kDataLoss) << failed.error().message;
}

TEST_F(S3ClientTest, ALargeUploadWithAKeyThatMayOnlyWriteIsDone) {
  handler_.spoil = [](const http::RequestHead& head, int, http::Response& response) {
    if (head.method == "HEAD") response = {403, {}, "", {}};
  };
  const fs::path file = folder_.path() / "upload";
  ASSERT_TRUE(replace_file(file, std::string(40 << 20, 'x')));
  const auto put = store_->put_file("bucket", "written", file, {}, {});
  ASSERT_TRUE(put) << put.error().message;
  EXPECT_EQ(put->size, std::uint64_t{40} << 20);
  handler_.spoil = [](const http::RequestHead&, int, http::Response&) {};
  EXPECT_EQ(store_->head("bucket", "written")->size, std::uint64_t{40} << 20);
}

TEST_F(S3ClientTest, AnObjectLargerThanItsLimitIsRefusedWithoutReadingIt) {
  const auto refused = store_->get_bytes("bucket", "large", 1000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted) << refused.error().message;
  EXPECT_EQ(handler_.requests, 1);
}

TEST(S3Uri, IsSplitIntoBucketAndKeyByteForByte) {
  EXPECT_EQ(parse_s3_uri("s3://b/k")->key, "k");
  EXPECT_EQ(parse_s3_uri("s3://b")->key, "");
  EXPECT_EQ(parse_s3_uri("s3://b//a/../ %41")->key, "/a/../ %41");
  EXPECT_FALSE(parse_s3_uri("s3:///k"));
  EXPECT_FALSE(parse_s3_uri("http://b/k"));
  EXPECT_FALSE(parse_s3_uri(""));
}

}  // namespace
}  // namespace atelier::objects
