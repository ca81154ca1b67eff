#include "http/message.h"

#include <gtest/gtest.h>

namespace atelier::http {
namespace {

TEST(Headers, NamesCompareWithoutCaseAndKeepTheirOrder) {
  Headers headers{{"Host", "a"}, {"x-amz-meta-k", "1"}};
  headers.add("X-Amz-Meta-K", "2");
  EXPECT_EQ(headers.find("HOST"), "a");
  EXPECT_EQ(headers.joined("x-amz-meta-K"), "1,2");
  EXPECT_FALSE(headers.find("hos"));
  headers.set("X-AMZ-META-K", "3");
  EXPECT_EQ(headers.joined("x-amz-meta-k"), "3");
  EXPECT_EQ(headers.fields().size(), 2u);
}

TEST(RequestHead, TargetSplitsAtTheFirstQuestionMark) {
  RequestHead head;
  head.target = "/b/k%3F?a=1?2";
  EXPECT_EQ(head.path(), "/b/k%3F");
  EXPECT_EQ(head.query(), "a=1?2");
  head.target = "/b";
  EXPECT_EQ(head.path(), "/b");
  EXPECT_EQ(head.query(), "");
}

TEST(Percent, DecodingUndoesEncodingForEveryByte) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(*percent_decode(percent_encode(all)), all);
  EXPECT_EQ(*percent_decode(percent_encode(all, true)), all);
  EXPECT_EQ(percent_encode("a b+c/~é"), "a%20b%2Bc%2F~%C3%A9");
  EXPECT_EQ(percent_encode("a/b", true), "a/b");
}

TEST(Percent, ABrokenEscapeIsRefusedByName) {
  for (const char* text : {"%", "a%2", "%zz", "%2", "%%41"}) {
    const Result<std::string> decoded = percent_decode(text);
    ASSERT_FALSE(decoded) << text;
    EXPECT_EQ(decoded.error().code, Code::kInvalidArgument);
    EXPECT_NE(decoded.error().message.find('%'), std::string::npos);
  }
  EXPECT_EQ(*percent_decode("%41"), "A");
  EXPECT_EQ(*percent_decode("a+b"), "a+b");
  EXPECT_EQ(*percent_decode("a+b", true), "a b");
}

TEST(Query, ParametersWithoutAValueAndRepeatedOnesAreKept) {
  const auto pairs = *parse_query("uploads&a=1&&a=2%263&b==&c=x+y%2B");
  ASSERT_EQ(pairs.size(), 5u);
  EXPECT_EQ(pairs[0], std::make_pair(std::string{"uploads"}, std::string{}));
  EXPECT_EQ(pairs[1].second, "1");
  EXPECT_EQ(pairs[2].second, "2&3");
  EXPECT_EQ(pairs[3], std::make_pair(std::string{"b"}, std::string{"="}));
  EXPECT_EQ(pairs[4].second, "x y+");
  EXPECT_TRUE(parse_query("")->empty());
  EXPECT_FALSE(parse_query("a=%4"));
}

TEST(Query, MoreThanAThousandParametersAreRefused) {
  std::string query;
  for (int i = 0; i < 1000; ++i) query += "a&";
  EXPECT_EQ(parse_query(query)->size(), 1000u);
  EXPECT_EQ(parse_query(query + "a").error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace atelier::http
