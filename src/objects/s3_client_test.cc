// What only the client does; what every object store does is in object_store_contract_test.cc.
#include "objects/s3_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "base/file.h"
#include "objects/local_store.h"
#include "objects/testing.h"

namespace atelier::objects {
namespace {

namespace fs = std::filesystem;

// A port that nobody listens on: one that was just given back.
std::string silent_url(const std::filesystem::path& folder) {
  return testing::EmbeddedS3{folder}.endpoint().url;
}

TEST(S3Client, AServerThatIsAwayIsWaitedForAndFoundWhereItComesBack) {
  const TempFolder folder = *TempFolder::create();
  std::optional<testing::EmbeddedS3> server;
  S3Endpoint endpoint{.url = silent_url(folder.path() / "store"),
                      .credentials = testing::test_credentials(),
                      .url_file = (folder.path() / "endpoint").string()};
  int waits = 0;
  S3ClientOptions options;
  options.attempts = 2;
  options.patience = std::chrono::seconds{60};
  options.on_unreachable = [&](std::string_view words) {
    EXPECT_NE(words.find(endpoint.url), std::string_view::npos);
    ++waits;
    server.emplace(folder.path() / "store");
    ASSERT_TRUE(write_file_durably(folder.path() / "endpoint", server->endpoint().url + "\n"));
  };
  const auto client = make_s3_client(endpoint, options);
  ASSERT_TRUE(client->create_bucket("pictures"));
  ASSERT_TRUE(client->put("pictures", "a", "bytes", {}));
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(*client->get_bytes("pictures", "a", 100), "bytes");
}

TEST(S3Client, WithoutPatienceAServerThatIsAwayIsAnErrorThatNamesIt) {
  const TempFolder folder = *TempFolder::create();
  const auto client = make_s3_client(
      {.url = silent_url(folder.path() / "store"), .credentials = testing::test_credentials()},
      {.attempts = 2});
  const Result<ObjectInfo> put = client->put("pictures", "a", "bytes", {});
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kUnavailable);
  EXPECT_NE(put.error().message.find("s3://pictures/a"), std::string::npos);
}

TEST(S3Client, ACancelledUploadLeavesNoPartsBehind) {
  const TempFolder folder = *TempFolder::create();
  const fs::path file = folder.path() / "large";
  ASSERT_TRUE(replace_file(file, std::string(std::size_t{40} << 20, 'x')));
  {
    testing::EmbeddedS3 server{folder.path() / "store"};
    std::atomic<bool> cancelled = false;
    const auto client = make_s3_client(
        server.endpoint(),
        {.part_bytes = std::uint64_t{5} << 20, .cancelled = [&] { return cancelled.load(); }});
    ASSERT_TRUE(client->create_bucket("pictures"));
    const Result<ObjectInfo> put = client->put_file(
        "pictures", "a", file, {}, [&](std::uint64_t, std::uint64_t) { cancelled = true; });
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code, Code::kCancelled) << put.error().message;
  }
  const auto store = LocalStore::open(folder.path() / "store", system_clock());
  ASSERT_TRUE(store);
  EXPECT_TRUE((*store)->list_uploads({.bucket = "pictures"})->uploads.empty());
}

}  // namespace
}  // namespace atelier::objects
