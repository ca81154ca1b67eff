// What every object store must do, asked of the embedded S3 and, when ATELIER_TEST_RGW names one
// ("http://127.0.0.1:7480,access,secret"), of a Ceph RGW; and of both behind a relay that refuses,
// loses, cuts and stalls (tests/contract/run_with_faults names them). Where Ceph differs from the
// documents of Amazon S3, the documents win: the test says what it does not ask of Ceph, and why.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>

#include "base/hash.h"
#include "base/id.h"
#include "base/rng.h"
#include "objects/testing.h"

namespace atelier::objects {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<char>(rng(seed, 1, i / 8) >> (i % 8));
  return bytes;
}

std::optional<S3Endpoint> endpoint_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string all = text;
  const std::size_t first = all.find(',');
  const std::size_t second = all.find(',', first + 1);
  S3Endpoint endpoint{
      .url = all.substr(0, first), .region = "us-west-2", .credentials = {}, .ca_file = {}};
  endpoint.credentials = {all.substr(first + 1, second - first - 1), all.substr(second + 1), ""};
  return endpoint;
}

// Stores of other processes, by the variable that says where they are.
constexpr std::pair<const char*, const char*> kElsewhere[] = {
    {"CephRgw", "ATELIER_TEST_RGW"},
    {"CephRgwWithFaults", "ATELIER_TEST_RGW_WITH_FAULTS"},
    {"EmbeddedWithFaults", "ATELIER_TEST_EMBEDDED_WITH_FAULTS"},
};

std::vector<std::string> stores() {
  std::vector<std::string> names = {"Embedded"};
  for (const auto& [name, variable] : kElsewhere) {
    if (endpoint_in(variable)) names.emplace_back(name);
  }
  return names;
}

class ObjectStoreContract : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto* elsewhere = std::ranges::find(
        kElsewhere, GetParam(), [](const auto& row) { return std::string{row.first}; });
    if (elsewhere != std::end(kElsewhere)) {
      endpoint_ = *endpoint_in(elsewhere->second);
    } else {
      embedded_.emplace(folder_.path() / "store");
      endpoint_ = embedded_->endpoint();
    }
    // Small parts, so that a multipart upload is quick.
    const unsigned attempts = GetParam().ends_with("WithFaults") ? 12 : 5;
    store_ = make_s3_client(endpoint_,
                            {.max_connections = 16, .attempts = attempts, .part_bytes = 5 << 20});
    const Result<void> made = store_->create_bucket(bucket_);
    ASSERT_TRUE(made) << made.error().message;
  }
  [[nodiscard]] bool is_ceph() const { return GetParam().starts_with("CephRgw"); }

  Result<ObjectInfo> put(const std::string& key, std::string_view bytes,
                         const PutOptions& options = {}) {
    return store_->put(bucket_, key, bytes, options);
  }
  Result<std::string> get(const std::string& key) {
    return store_->get_bytes(bucket_, key, 1 << 28);
  }
  Result<std::string> get_range(const std::string& key, Range range) {
    std::string bytes;
    TRY(store_->get(bucket_, key, {.range = range, .if_match = {}},
                    [&](std::span<const std::byte> piece) -> Result<void> {
                      bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
                      return {};
                    }));
    return bytes;
  }
  std::vector<std::string> keys(ListOptions options = {}) {
    std::vector<std::string> names;
    while (true) {
      const Result<ListPage> page = store_->list(bucket_, options);
      EXPECT_TRUE(page) << page.error().message;
      if (!page) return names;
      for (const ObjectInfo& object : page->objects) names.push_back(object.key);
      for (const std::string& prefix : page->common_prefixes) names.push_back(prefix + "*");
      if (page->next_token.empty()) return names;
      options.continuation_token = page->next_token;
    }
  }
  fs::path write_file(const std::string& name, std::string_view bytes) {
    const fs::path path = folder_.path() / name;
    std::ofstream{path, std::ios::binary} << bytes;
    return path;
  }

  TempFolder folder_ = *TempFolder::create();
  std::optional<testing::EmbeddedS3> embedded_;
  S3Endpoint endpoint_;
  std::unique_ptr<ObjectStore> store_;
  const std::string bucket_ = "contract-" + random_id(8);
};

TEST_P(ObjectStoreContract, ABucketIsMadeOnceFoundListedAndRemoved) {
  EXPECT_TRUE(store_->create_bucket(bucket_)) << "one's own bucket again is fine";
  EXPECT_TRUE(store_->head_bucket(bucket_));
  const auto names = store_->list_buckets();
  ASSERT_TRUE(names);
  EXPECT_NE(std::find(names->begin(), names->end(), bucket_), names->end());
  ASSERT_TRUE(put("key", "x"));
  const Result<void> full = store_->delete_bucket(bucket_);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kFailedPrecondition) << full.error().message;
  ASSERT_TRUE(store_->remove(bucket_, "key"));
  EXPECT_TRUE(store_->delete_bucket(bucket_));
  const Result<void> gone = store_->head_bucket(bucket_);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
}

TEST_P(ObjectStoreContract, AnObjectComesBackAsItWasPut) {
  for (const std::size_t size : {0UL, 1UL, 65536UL, 65537UL, 3000000UL}) {
    const std::string bytes = bytes_of(size, size);
    const Result<ObjectInfo> stored =
        put("key", bytes, {.content_type = "image/jpeg", .metadata = {{"owner", "me"}}});
    ASSERT_TRUE(stored) << stored.error().message;
    EXPECT_EQ(stored->etag, to_hex(digest(Digest::kMd5, bytes)));
    const Result<std::string> back = get("key");
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_TRUE(*back == bytes) << size;
    const Result<ObjectInfo> head = store_->head(bucket_, "key");
    ASSERT_TRUE(head);
    EXPECT_EQ(head->size, size);
    EXPECT_EQ(head->etag, stored->etag);
    EXPECT_EQ(head->content_type, "image/jpeg");
    EXPECT_EQ(head->metadata.at("owner"), "me");
  }
}

TEST_P(ObjectStoreContract, WhatIsNotThereIsNotFound) {
  const auto code = [](const auto& result) {
    return result ? Code::kInternal : result.error().code;
  };
  EXPECT_EQ(code(get("missing")), Code::kNotFound);
  EXPECT_EQ(code(store_->head(bucket_, "missing")), Code::kNotFound);
  EXPECT_EQ(code(store_->get_bytes("contract-no-such-bucket", "key", 10)), Code::kNotFound);
  EXPECT_EQ(code(store_->put("contract-no-such-bucket", "key", "x", {})), Code::kNotFound);
  EXPECT_EQ(code(store_->copy(bucket_, "missing", bucket_, "copy")), Code::kNotFound);
  EXPECT_TRUE(store_->remove(bucket_, "missing")) << "removing what is not there is fine";
}

TEST_P(ObjectStoreContract, ReadsRangesAndRefusesThoseOutside) {
  const std::string small = bytes_of(1000, 1);
  const std::string large = bytes_of(200000, 2);
  ASSERT_TRUE(put("small", small));
  ASSERT_TRUE(put("large", large));
  EXPECT_EQ(*get_range("small", {.first = 10, .last = 19}), small.substr(10, 10));
  EXPECT_EQ(*get_range("small", {.first = 990, .last = 5000}), small.substr(990));
  EXPECT_EQ(*get_range("small", {.first = 0, .last = 999}), small);
  EXPECT_TRUE(*get_range("large", {.first = 100000, .last = std::nullopt}) == large.substr(100000));
  const Result<std::string> outside = get_range("small", {.first = 1000, .last = 1001});
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().code, Code::kOutOfRange) << outside.error().message;
}

TEST_P(ObjectStoreContract, ConditionsAreKept) {
  const Result<ObjectInfo> stored = put("key", "first", {.if_none_match = true});
  ASSERT_TRUE(stored) << stored.error().message;
  const Result<ObjectInfo> again = put("key", "second", {.if_none_match = true});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kFailedPrecondition) << again.error().message;
  EXPECT_EQ(*get("key"), "first");
  const Sink drop = [](std::span<const std::byte>) -> Result<void> { return {}; };
  EXPECT_TRUE(store_->get(bucket_, "key", {.range = {}, .if_match = stored->etag}, drop));
  const auto other =
      store_->get(bucket_, "key", {.range = {}, .if_match = std::string(32, '0')}, drop);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kFailedPrecondition) << other.error().message;
}

// Every kind of key that has broken an object store on a file system.
std::vector<std::string> odd_keys() {
  std::vector<std::string> keys = {"plain",
                                   "a b",
                                   "a+b",
                                   "a%41",
                                   "%",
                                   "%2F",
                                   "a//b",
                                   "//",
                                   "/lead",
                                   "trail/",
                                   ".",
                                   "..",
                                   "./a",
                                   "../a",
                                   "a/../b",
                                   "a/./b",
                                   "\xC3\xA9",
                                   "e\xCC\x81",
                                   "\xF0\x9F\x98\x80",
                                   "q?a=1&b",
                                   "#hash",
                                   "'quote\"",
                                   "<xml>&amp;",
                                   "back\\slash",
                                   "tab\t",
                                   "line\nbreak",
                                   " lead",
                                   "trail ",
                                   "\x01\x1F",
                                   "\x7F",
                                   "~-_.",
                                   "a:b;c,d@e!f$g*h(i)j",
                                   "CON",
                                   "=",
                                   "[x]{y}|z^`"};
  keys.push_back(std::string(1024, 'k'));
  keys.push_back(std::string(512, '/') + std::string(512, '.'));
  return keys;
}

TEST_P(ObjectStoreContract, AnyLegalKeyIsKeptApartListedInByteOrderCopiedAndRemoved) {
  std::vector<std::string> expected = odd_keys();
  for (const std::string& key : expected) {
    const Result<ObjectInfo> stored = put(key, "body of " + key);
    ASSERT_TRUE(stored) << "'" << key << "': " << stored.error().message;
  }
  for (const std::string& key : expected) {
    const Result<std::string> back = get(key);
    ASSERT_TRUE(back) << "'" << key << "': " << back.error().message;
    EXPECT_EQ(*back, "body of " + key);
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(keys(), expected);
  EXPECT_EQ(keys({.prefix = {},
                  .delimiter = {},
                  .start_after = {},
                  .continuation_token = {},
                  .max_keys = 3}),
            expected);
  const Result<void> copied = store_->copy(bucket_, "a//b", bucket_, "copy of/../a+b %41");
  ASSERT_TRUE(copied) << copied.error().message;
  EXPECT_EQ(*get("copy of/../a+b %41"), "body of a//b");
  expected.emplace_back("copy of/../a+b %41");
  const Result<void> removed = store_->remove_many(bucket_, expected);
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_TRUE(keys().empty());
}

TEST_P(ObjectStoreContract, AKeyThatIsTooLongIsRefused) {
  const Result<ObjectInfo> refused = put(std::string(1025, 'k'), "x");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << refused.error().message;
}

TEST_P(ObjectStoreContract, ListsUnderPrefixAndDelimiterPageByPage) {
  for (const char* key : {"a.txt", "d/1", "d/2", "d/e/3", "d/e/4", "f/5", "g"})
    ASSERT_TRUE(put(key, key));
  for (const unsigned page : {1U, 2U, 1000U}) {
    const auto listed = [&](std::string prefix, std::string delimiter, std::string after = {}) {
      std::vector<std::string> names =
          keys({std::move(prefix), std::move(delimiter), std::move(after), {}, page});
      std::sort(names.begin(), names.end());
      return names;
    };
    using Names = std::vector<std::string>;
    EXPECT_EQ(listed("", "/"), (Names{"a.txt", "d/*", "f/*", "g"}));
    EXPECT_EQ(listed("d/", "/"), (Names{"d/1", "d/2", "d/e/*"}));
    EXPECT_EQ(listed("d", ""), (Names{"d/1", "d/2", "d/e/3", "d/e/4"}));
    EXPECT_EQ(listed("", "", "d/2"), (Names{"d/e/3", "d/e/4", "f/5", "g"}));
    EXPECT_EQ(listed("nothing", "/"), Names{});
  }
}

TEST_P(ObjectStoreContract, RemovesMoreThanAThousandKeys) {
  std::vector<Upload> items;
  std::vector<std::string> names;
  for (int i = 0; i < 1100; ++i) {
    names.push_back("many/" + std::to_string(i));
    items.push_back({.key = names.back(), .path = {}, .bytes = "x", .options = {}});
  }
  const Result<void> uploaded = store_->upload_many(bucket_, items, {});
  ASSERT_TRUE(uploaded) << uploaded.error().message;
  EXPECT_EQ(keys().size(), 1100U);
  const Result<void> removed = store_->remove_many(bucket_, names);
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_TRUE(keys().empty());
}

TEST_P(ObjectStoreContract, ALargeFileGoesUpInPartsAndComesDownWhole) {
  const std::string bytes = bytes_of((std::size_t{11} << 20) + 17, 3);
  const fs::path source = write_file("source", bytes);
  std::atomic<std::uint64_t> last = 0;
  const Result<ObjectInfo> stored = store_->put_file(
      bucket_, "large", source, {.content_type = "application/x-tar", .metadata = {{"a", "b"}}},
      [&](std::uint64_t done, std::uint64_t) { last = std::max(last.load(), done); });
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_TRUE(stored->etag.ends_with("-3")) << stored->etag;
  EXPECT_EQ(stored->content_type, "application/x-tar");
  EXPECT_EQ(stored->metadata.at("a"), "b");
  EXPECT_EQ(last, bytes.size());
  EXPECT_TRUE(*get_range("large", {.first = (5 << 20) - 10, .last = (5 << 20) + 10}) ==
              bytes.substr((5 << 20) - 10, 21));
  const fs::path back = folder_.path() / "down/back";
  const Result<void> downloaded = store_->download_many(
      bucket_, {{.key = "large", .size = bytes.size(), .etag = stored->etag, .path = back}}, {});
  ASSERT_TRUE(downloaded) << downloaded.error().message;
  EXPECT_TRUE(*read_file(back) == bytes);
}

TEST_P(ObjectStoreContract, ManyFilesGoUpAndComeDown) {
  std::vector<Upload> items;
  for (int i = 0; i < 200; ++i) {
    const std::string name = "f" + std::to_string(i);
    const std::string bytes =
        bytes_of(static_cast<std::size_t>(i) * 997 % 9001, static_cast<std::uint64_t>(i));
    items.push_back(
        {.key = "tree/" + name, .path = write_file(name, bytes), .bytes = {}, .options = {}});
  }
  ASSERT_TRUE(store_->upload_many(bucket_, items, {}));
  const Result<ListPage> page = store_->list(
      bucket_, {.prefix = "tree/", .delimiter = {}, .start_after = {}, .continuation_token = {}});
  ASSERT_TRUE(page);
  ASSERT_EQ(page->objects.size(), 200U);
  std::vector<Download> downloads;
  for (const ObjectInfo& object : page->objects) {
    downloads.push_back(
        {object.key, object.size, object.etag, folder_.path() / "down" / object.key});
  }
  const Result<void> done = store_->download_many(bucket_, downloads, {});
  ASSERT_TRUE(done) << done.error().message;
  for (const Upload& item : items) {
    EXPECT_TRUE(*read_file(folder_.path() / "down" / item.key) == *read_file(item.path))
        << item.key;
  }
}

TEST_P(ObjectStoreContract, ADownloadOfWhatWasReplacedSinceItWasListedFailsAndLeavesNoFile) {
  ASSERT_TRUE(put("key", "listed"));
  const Result<ObjectInfo> listed = store_->head(bucket_, "key");
  ASSERT_TRUE(listed);
  ASSERT_TRUE(put("key", "replaced"));
  const fs::path path = folder_.path() / "down/key";
  const Result<void> done =
      store_->download_many(bucket_, {{"key", listed->size, listed->etag, path}}, {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kAborted) << done.error().message;
  EXPECT_TRUE(fs::is_empty(path.parent_path()));
}

TEST_P(ObjectStoreContract, ACopyTakesMetadataAndLivesOn) {
  const std::string bytes = bytes_of(100000, 9);
  ASSERT_TRUE(put("from", bytes, {.content_type = "text/plain", .metadata = {{"m", "v"}}}));
  const Result<void> copied = store_->copy(bucket_, "from", bucket_, "to");
  ASSERT_TRUE(copied) << copied.error().message;
  ASSERT_TRUE(store_->remove(bucket_, "from"));
  EXPECT_TRUE(*get("to") == bytes);
  const Result<ObjectInfo> head = store_->head(bucket_, "to");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->content_type, "text/plain");
  EXPECT_EQ(head->metadata.at("m"), "v");
}

TEST_P(ObjectStoreContract, AWrongSecretIsRefused) {
  S3Endpoint endpoint = endpoint_;
  endpoint.credentials.secret_key += "x";
  const auto stranger = make_s3_client(endpoint);
  const auto refused = stranger->get_bytes(bucket_, "key", 10);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnauthenticated) << refused.error().message;
}

INSTANTIATE_TEST_SUITE_P(Stores, ObjectStoreContract, ::testing::ValuesIn(stores()),
                         [](const auto& store) { return store.param; });

}  // namespace
}  // namespace atelier::objects
