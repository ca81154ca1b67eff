#include "channels/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "channels/channel_plan.h"

namespace atelier::channels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(std::string_view text) {
  const auto manifest = parse_manifest(text);
  return manifest ? "" : manifest.error().message;
}

TEST(ManifestFile, NamesObjectsBelowAPrefixEachOnce) {
  const auto manifest =
      parse_manifest(R"([{"prefix": "s3://b/some/prefix/"}, "a/1", "2", "a/1"])").value();
  EXPECT_EQ(manifest.prefix.uri(), "s3://b/some/prefix/");
  EXPECT_THAT(manifest.names, ElementsAre("a/1", "2"));
}

TEST(ManifestFile, IsRefusedByTheEntryThatIsWrong) {
  EXPECT_THAT(refusal("{}"), HasSubstr("a JSON array"));
  EXPECT_THAT(refusal("[]"), HasSubstr("a JSON array"));
  EXPECT_THAT(refusal(R"(["a"])"), HasSubstr("entry 1 has to be"));
  EXPECT_THAT(refusal(R"([{"prefix": "b/x"}, "a"])"), HasSubstr("entry 1: the prefix 'b/x'"));
  EXPECT_THAT(refusal(R"([{"prefix": "s3://b/x"}])"), HasSubstr("no object"));
  EXPECT_THAT(refusal(R"([{"prefix": "s3://b/x"}, "a", 7])"), HasSubstr("entry 3 has to be"));
  EXPECT_THAT(refusal(R"([{"prefix": "s3://b/x"}, ""])"), HasSubstr("entry 2 has to be"));
  EXPECT_NE(refusal(R"([{"prefix")"), "");
  EXPECT_THAT(refusal(std::string(kMaxManifestBytes + 1, ' ')), HasSubstr("at most"));
}

TEST(AugmentedManifestFile, GivesTheReferencesOfTheNamedAttributesLineByLine) {
  const auto lines =
      parse_augmented_manifest(
          "{\"image-ref\": \"s3://b/1.jpg\", \"label\": 3, \"other-ref\": \"s3://b/x\"}\r\n"
          "\n{\"image-ref\":\"s3://b/2.jpg\",\"label\":4}",
          {"image-ref", "label"})
          .value();
  ASSERT_EQ(lines.size(), 2U);
  ASSERT_EQ(lines[0].references.size(), 1U);
  EXPECT_EQ(lines[0].references[0].uri(), "s3://b/1.jpg");
  EXPECT_EQ(lines[1].text, "{\"image-ref\":\"s3://b/2.jpg\",\"label\":4}");
}

TEST(AugmentedManifestFile, IsRefusedByTheLineThatIsWrong) {
  const auto refusal = [](std::string_view text) {
    const auto lines = parse_augmented_manifest(text, {"image-ref", "label"});
    return lines ? "" : lines.error().message;
  };
  const std::string good = "{\"image-ref\": \"s3://b/1.jpg\", \"label\": 3}\n";
  EXPECT_EQ(refusal(good), "");
  EXPECT_THAT(refusal(good + "\n[]\n"), HasSubstr("line 3: it has to be a JSON object"));
  EXPECT_THAT(refusal(good + "{\"image-ref\": \"s3://b/1.jpg\"}"),
              HasSubstr("line 2: it has no attribute 'label'"));
  EXPECT_THAT(refusal("{\"image-ref\": 1, \"label\": 3}"),
              HasSubstr("line 1: 'image-ref' has to be an S3 URI"));
  EXPECT_THAT(refusal("{\"image-ref\": \"x\", \"label\": 3}"),
              HasSubstr("line 1: 'image-ref' is 'x'"));
  EXPECT_THAT(refusal("{\"image-ref\": \"s3://b\", \"label\": 3}"), HasSubstr("not of the form"));
  EXPECT_THAT(refusal(""), HasSubstr("no lines"));
  EXPECT_THAT(refusal("{"), HasSubstr("line 1"));
}

std::string plan_refusal(const std::vector<std::pair<std::string, std::string>>& files,
                         bool folds) {
  ChannelPlanner planner{"b", 10, folds};
  for (const auto& [key, name] : files)
    planner.add({.key = key, .size = 1, .etag = "e"}, name).value();
  const auto plan = std::move(planner).finish();
  return plan ? "" : plan.error().message;
}

TEST(ChannelPlans, NameEveryObjectThatCannotBeAFileUpToABound) {
  const std::string message =
      plan_refusal({{"x/../a", "../a"}, {"good", "good"}, {"y//b", "y//b"}}, false);
  EXPECT_THAT(message, HasSubstr("2 objects cannot become files"));
  EXPECT_THAT(message, HasSubstr("'s3://b/x/../a' (its key has a part"));
  EXPECT_THAT(message, HasSubstr("'s3://b/y//b' (its key has an empty part"));
  std::vector<std::pair<std::string, std::string>> many;
  for (int i = 0; i < 1000; ++i)
    many.emplace_back("k" + std::to_string(i), "../" + std::to_string(i));
  EXPECT_THAT(plan_refusal(many, false), HasSubstr("1000 objects"));
  EXPECT_LT(plan_refusal(many, false).size(), 3000U);
}

TEST(ChannelPlans, NamesThatDifferByCaseCollideWhereTheFileSystemFoldsIt) {
  EXPECT_EQ(plan_refusal({{"A.jpg", "A.jpg"}, {"a.jpg", "a.jpg"}}, false), "");
  EXPECT_THAT(plan_refusal({{"A.jpg", "A.jpg"}, {"a.jpg", "a.jpg"}}, true),
              HasSubstr("the key 'A.jpg' lands on the same name"));
  EXPECT_THAT(plan_refusal({{"D/x", "D/x"}, {"d", "d"}}, true), HasSubstr("needs a folder"));
  EXPECT_THAT(plan_refusal({{"d/x", "d/x"}, {"d", "d"}}, false), HasSubstr("needs a folder"));
}

TEST(Shards, AreDisjointAndTogetherTheWholeListInTheSameOrderEverywhere) {
  for (const std::size_t count : {1U, 2U, 3U, 7U}) {
    for (const auto seed : {std::optional<std::uint64_t>{}, std::optional<std::uint64_t>{42}}) {
      std::vector<int> seen(100, 0);
      for (std::size_t index = 0; index < count; ++index) {
        const auto part = shard_of(100, {index, count}, seed);
        EXPECT_NEAR(static_cast<double>(part.size()), 100.0 / static_cast<double>(count), 1.0);
        for (const std::size_t i : part) ++seen[i];
      }
      for (const int times : seen) EXPECT_EQ(times, 1);
    }
  }
  EXPECT_THAT(shard_of(5, {1, 2}, {}), ElementsAre(1U, 3U));
  EXPECT_NE(shard_of(100, {0, 2}, 1), shard_of(100, {0, 2}, 2));
  EXPECT_TRUE(shard_of(1, {1, 2}, {}).empty());
}

}  // namespace
}  // namespace atelier::channels
