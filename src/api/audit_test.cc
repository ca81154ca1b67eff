#include "api/audit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "base/json.h"

namespace atelier::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AuditTest : public ::testing::Test {
 protected:
  std::string text(const std::string& name = "audit.jsonl") {
    return read_file(folder_.path() / "audit" / name).value_or("");
  }
  std::vector<json::value> lines() {
    std::vector<json::value> found;
    for (const auto& path : audit_files(folder_.path() / "audit")) {
      const std::string all = read_file(path).value();
      for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = all.find('\n', at);
        found.push_back(parse_json(all.substr(at, end - at)).value());
        at = end + 1;
      }
    }
    return found;
  }
  std::unique_ptr<AuditLog> open(AuditLimits limits = {}) {
    return AuditLog::open(folder_.path() / "audit", limits).value();
  }
  TempFolder folder_ = *TempFolder::create();
};

TEST_F(AuditTest, ALineSaysWhoDidWhatFromWhereAndWhatCameOfIt) {
  open()->write({*parse_iso8601("2026-11-30T07:05:55.123Z"), "arn:aws:iam::0:user/ann", "AKIA1",
                 "s3:GetObject", "arn:aws:s3:::b/\"\n\xff", 403, "AccessDenied", "127.0.0.1:1",
                 "id-1", false});
  ASSERT_EQ(lines().size(), 1u) << text();
  EXPECT_EQ(lines()[0].at("time").as_string(), "2026-11-30T07:05:55.123Z");
  EXPECT_EQ(lines()[0].at("principal").as_string(), "arn:aws:iam::0:user/ann");
  EXPECT_EQ(lines()[0].at("status").as_int64(), 403);
  EXPECT_EQ(lines()[0].at("error").as_string(), "AccessDenied");
  struct stat info {};
  ASSERT_EQ(stat((folder_.path() / "audit/audit.jsonl").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST_F(AuditTest, IsBoundedAndKeepsTheNewest) {
  {
    const auto log = open({.file_bytes = 500, .files = 3});
    for (int i = 0; i < 100; ++i) {
      log->write({.action = "a:b", .status = 200, .request_id = std::to_string(i)});
    }
  }
  EXPECT_LE(audit_files(folder_.path() / "audit").size(), 3u);
  const std::vector<json::value> kept = lines();
  ASSERT_GT(kept.size(), 10u);
  EXPECT_LT(kept.size(), 40u);
  // Without a gap, up to the last.
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].at("request_id").as_string(), std::to_string(100 - kept.size() + i));
  }
}

TEST_F(AuditTest, StrangersDoNotPushTheOthersOut) {
  const auto log = open({.file_bytes = 500, .files = 2, .unknown_file_bytes = 2000});
  const Time start = *parse_iso8601("2026-11-30T07:00:00Z");
  log->write({.time = start, .principal = "arn:ann", .action = "a:b", .status = 200});
  for (int i = 0; i < 1000; ++i) {
    log->write({.time = start + std::chrono::milliseconds{i},
                .action = "s3:GetObject",
                .resource = "x",
                .status = 403,
                .error = "AccessDenied",
                .source = fmt::format("10.0.0.1:{}", i)});
  }
  EXPECT_EQ(lines().size(), 1u) << "what ann did is still there, and alone";
  log->write({.time = start + std::chrono::minutes{1}, .status = 403, .source = "10.0.0.1:7"});
  const std::string told = text("unknown.jsonl");
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 2) << told;
  EXPECT_THAT(told, HasSubstr("\"without_a_line_before\":999"));
  for (int address = 0; address < 5000; ++address) {
    log->write({.time = start + std::chrono::minutes{2},
                .status = 403,
                .source = fmt::format("10.1.{}.{}:1", address / 256, address % 256)});
  }
  const auto files = audit_files(folder_.path() / "audit", true);
  EXPECT_EQ(files.size(), 2u);
  for (const auto& file : files) EXPECT_LE(std::filesystem::file_size(file), 2000u);
}

TEST_F(AuditTest, ALineIsBoundedAsItIsWritten) {
  open()->write({.principal = "arn:ann",
                 .action = "s3:GetObject",
                 .resource = std::string(10'000, '\x01'),
                 .status = 200,
                 .detail = std::string(10'000, '\xff')});
  EXPECT_LT(text().size(), 5000u);
  EXPECT_EQ(lines().size(), 1u);
}

TEST_F(AuditTest, ALineThatAKillCutShortDoesNotSpoilTheNext) {
  open()->write({.action = "a:b", .status = 200});
  std::string cut = text();
  cut.resize(cut.size() - 5);
  ASSERT_TRUE(write_file_durably(folder_.path() / "audit/audit.jsonl", cut, 0600));
  open()->write({.action = "a:c", .status = 200});
  EXPECT_THAT(text(), HasSubstr("\n{\"time\""));
  EXPECT_THAT(text(), HasSubstr("\"a:c\""));
}

TEST_F(AuditTest, LinesOfManyThreadsStayWhole) {
  const auto log = open();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) log->write({.action = "a:b", .status = 200});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines().size(), 800u);
}

}  // namespace
}  // namespace atelier::api
