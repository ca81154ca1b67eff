#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/json.h"
#include "base/own_folder.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "base/strict_json.h"
#include "base/time.h"

namespace atelier {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error{Code::kInvalidArgument, "odd"};
  return value / 2;
}
Result<int> quarter(int value) { return TRY(half(TRY(half(value)))); }

TEST(Result, TryHandsTheErrorToTheCaller) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).error().message, "odd");
  EXPECT_EQ(quarter(6).error().within("six").message, "six: odd");
}

TEST(File, ADurableWriteReplacesWholeAndLeavesNoTemporary) {
  const TempFolder folder = *TempFolder::create();
  const auto path = folder.path() / "a";
  ASSERT_TRUE(write_file_durably(path, "one", 0600));
  ASSERT_TRUE(write_file_durably(path, "two", 0600));
  EXPECT_EQ(*read_file(path), "two");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(File, CreateRefusesAFileThatIsThere) {
  const TempFolder folder = *TempFolder::create();
  const auto path = folder.path() / "a";
  ASSERT_TRUE(create_file_durably(path, "mine"));
  EXPECT_EQ(create_file_durably(path, "other").error().code, Code::kAlreadyExists);
  EXPECT_EQ(*read_file(path), "mine");
}

TEST(File, ReadNamesTheLimitAndThePath) {
  const TempFolder folder = *TempFolder::create();
  ASSERT_TRUE(write_file_durably(folder.path() / "a", std::string(100, 'x')));
  EXPECT_EQ(read_file(folder.path() / "a", 99).error().code, Code::kResourceExhausted);
  EXPECT_EQ(read_file(folder.path() / "none").error().code, Code::kNotFound);
  EXPECT_NE(read_file(folder.path() / "none").error().message.find("none"), std::string::npos);
}

TEST(File, ALockIsHeldByOneOwner) {
  const TempFolder folder = *TempFolder::create();
  Result<UniqueFd> first = lock_file(folder.path() / "lock");
  ASSERT_TRUE(first);
  EXPECT_EQ(lock_file(folder.path() / "lock").error().code, Code::kFailedPrecondition);
  first->reset();
  EXPECT_TRUE(lock_file(folder.path() / "lock"));
}

TEST(Hash, KnownDigests) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(digest(Digest::kMd5, "abc")), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(to_base64("abcd"), "YWJjZA==");
  EXPECT_EQ(*from_base64("YWJjZA=="), "abcd");
  EXPECT_FALSE(from_base64("YW*j"));
  EXPECT_EQ(*from_hex("00ff"), std::string("\0\xff", 2));
  EXPECT_FALSE(from_hex("0g"));
}

// RFC 4231, cases 1, 2 and 6, and one without a key and a text.
TEST(Hash, KnownMacsOneAfterTheOther) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(to_hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(to_hex(hmac_sha256(std::string(131, '\xaa'),
                                 "Test Using Larger Than Block-Size Key - Hash Key First")),
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    EXPECT_EQ(to_hex(hmac_sha256({}, {})),
              "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  }
}

TEST(Time, WritesAndReadsTheFormsOfTheWire) {
  const Time time = from_epoch_milliseconds(1796022355123);
  EXPECT_EQ(format_iso8601(time, true), "2026-11-30T07:05:55.123Z");
  EXPECT_EQ(format_basic_iso8601(time), "20261130T070555Z");
  EXPECT_EQ(format_http_date(time), "Mon, 30 Nov 2026 07:05:55 GMT");
  EXPECT_EQ(*parse_iso8601("2026-11-30T07:05:55.123Z"), time);
  EXPECT_EQ(*parse_iso8601("20261130T070555Z"), time - std::chrono::milliseconds{123});
  EXPECT_EQ(*parse_http_date("Mon, 30 Nov 2026 07:05:55 GMT"),
            time - std::chrono::milliseconds{123});
  EXPECT_FALSE(parse_iso8601("2026-13-30T07:05:55Z"));
  EXPECT_FALSE(parse_iso8601("yesterday at noon, more or less"));
}

TEST(Json, ErrorsSayWhereAndDepthIsBounded) {
  EXPECT_TRUE(parse_json(R"({"a":[1,2,{"b":null}]})"));
  EXPECT_NE(parse_json("{\"a\":}").error().message.find("byte 5"), std::string::npos);
  EXPECT_FALSE(parse_json(std::string(100, '[') + std::string(100, ']')));
  EXPECT_FALSE(parse_json("{} x"));
}

TEST(Json, WhatGrantsRightsHasEachMemberOnce) {
  EXPECT_TRUE(parse_strict_json(R"({"a":{"b":1,"c":2},"b":[{"b":1},{"b":1}],"":0})"));
  for (const char* text :
       {R"({"a":1,"name":2,"name":3})", R"({"a":{"x":[{"name":1,"b":{},"name":1}]}})",
        R"({"name":1,"n\u0061me":2})"}) {
    const auto parsed = parse_strict_json(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message, "the member 'name' is there twice");
  }
  EXPECT_NE(parse_strict_json("{\"a\":}").error().message.find("byte 5"), std::string::npos);
  EXPECT_FALSE(parse_strict_json(std::string(100, '[') + std::string(100, ']')));
}

TEST(RemoveTree, TakesWhateverAProgramCanLeaveAndFollowsNoLink) {
  const TempFolder folder = *TempFolder::create();
  const auto tree = folder.path() / "tree";
  ASSERT_TRUE(make_folders(tree / "a/b"));
  ASSERT_TRUE(make_folders(folder.path() / "kept"));
  ASSERT_TRUE(replace_file(folder.path() / "kept/file", "x"));
  std::filesystem::create_symlink(folder.path() / "kept", tree / "a/link");
  std::filesystem::create_symlink(folder.path() / "kept/file", tree / "a/b/link");
  ASSERT_EQ(mkfifo((tree / "a/fifo").c_str(), 0600), 0);
  ASSERT_TRUE(make_folders(tree / "closed/inner/most"));
  ASSERT_TRUE(replace_file(tree / "closed/inner/file", "x"));
  ASSERT_EQ(chmod((tree / "closed/inner").c_str(), 0), 0);
  ASSERT_EQ(chmod((tree / "closed").c_str(), 0500), 0);
  const Result<void> removed = remove_tree(tree);
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_FALSE(std::filesystem::exists(tree));
  EXPECT_EQ(*read_file(folder.path() / "kept/file"), "x");
  EXPECT_TRUE(remove_tree(tree)) << "nothing there is fine";
  std::filesystem::create_symlink(folder.path() / "kept", tree);
  EXPECT_TRUE(remove_tree(tree));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "kept/file"));
}

TEST(OwnFolder, IsOpenedOrNotThereAndALinkIsRefusedByItsPath) {
  const TempFolder folder = *TempFolder::create();
  const auto own = folder.path() / "own";
  EXPECT_EQ(open_own_folder(own).error().code, Code::kNotFound);
  EXPECT_TRUE(check_own_folder(own));
  ASSERT_TRUE(make_folders(own / "inner"));
  const Result<UniqueFd> opened = open_own_folder(own);
  ASSERT_TRUE(opened);
  EXPECT_EQ(*names_in(opened->get()), std::vector<std::string>{"inner"});
  for (const auto& target : {own, folder.path() / "nowhere"}) {
    const auto link = folder.path() / "link";
    std::filesystem::create_directory_symlink(target, link);
    const Result<void> refused = check_own_folder(link);
    EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
    EXPECT_NE(refused.error().message.find("'" + link.string() + "' is a link"), std::string::npos);
    ASSERT_TRUE(remove_tree_at(opened->get(), "../link"));
  }
  ASSERT_TRUE(remove_tree_at(opened->get(), "inner"));
  EXPECT_TRUE(std::filesystem::is_empty(own));
  ASSERT_TRUE(replace_file(folder.path() / "file", ""));
  EXPECT_EQ(check_own_folder(folder.path() / "file").error().code, Code::kFailedPrecondition);
}

TEST(RemoveTree, IsNotStoppedByDepth) {
  const TempFolder folder = *TempFolder::create();
  const auto tree = folder.path() / "tree";
  ASSERT_TRUE(make_folders(tree));
  UniqueFd deepest = *open_file(tree, O_RDONLY | O_DIRECTORY);
  constexpr int kDepth = 5000;  // more than a process may have descriptors, or a path names
  for (int depth = 0; depth < kDepth; ++depth) {
    ASSERT_EQ(mkdirat(deepest.get(), "d", 0755), 0);
    deepest = UniqueFd{openat(deepest.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    ASSERT_TRUE(deepest);
  }
  deepest.reset();
  const Result<void> removed = remove_tree(tree);
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_FALSE(std::filesystem::exists(tree));
}

TEST(Parallel, WhereTheHostGivesNoMoreThreadsAllIsDoneByThoseThatCame) {
  const pid_t child = fork();
  if (child == 0) {
    const struct rlimit none { 0, 0 };
    bool ready = setrlimit(RLIMIT_NPROC, &none) == 0;
    if (geteuid() == 0) ready = ready && setresuid(65534, 65534, 65534) == 0;  // root has no limit
    std::atomic<int> done = 0;
    const Result<void> outcome = for_each_parallel(50, 8, [&](std::size_t) -> Result<void> {
      ++done;
      return {};
    });
    _exit(!ready ? 2 : outcome && done == 50 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Id, TokensHaveTheirLengthAndDiffer) {
  EXPECT_EQ(random_id().size(), 32u);
  EXPECT_TRUE(is_random_id(random_id()));
  EXPECT_TRUE(is_random_id(random_id(8), 8));
  for (const char* text :
       {"", "precious", "0123456789abcdef0123456789abcdeF", "0123456789abcdef0123456789abcde",
        "0123456789abcdef0123456789abcdef0"}) {
    EXPECT_FALSE(is_random_id(text)) << text;
  }
  EXPECT_EQ(random_token(20).size(), 20u);
  EXPECT_NE(random_token(20), random_token(20));
}

TEST(Rng, IsAFunctionOfSeedStreamAndIndex) {
  EXPECT_EQ(rng(1, 2, 3), rng(1, 2, 3));
  EXPECT_NE(rng(1, 2, 3), rng(1, 2, 4));
  EXPECT_NE(rng(1, 2, 3), rng(2, 1, 3));
}

}  // namespace
}  // namespace atelier
