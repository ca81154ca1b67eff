#include "access/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "access/authority.h"
#include "access/internal/pattern.h"
#include "access/resources.h"

namespace atelier::access {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Policy policy(std::string_view statements) {
  return Policy::parse(R"({"Version":"2012-10-17","Statement":[)" + std::string{statements} + "]}")
      .value();
}

Decision decide_one(const Policy& policy, std::string_view action, std::string_view resource,
                    std::string_view prefix = "-") {
  const std::pair<std::string_view, std::string_view> context[] = {{"s3:prefix", prefix}};
  if (prefix == "-") return policy.decide({action, resource});
  return policy.decide({action, resource, context});
}

TEST(Policy, WhatNoStatementAllowsIsDenied) {
  const Policy reader =
      policy(R"({"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"})");
  EXPECT_EQ(decide_one(reader, "s3:GetObject", "arn:aws:s3:::b/a/k"), Decision::kAllowed);
  EXPECT_EQ(decide_one(reader, "s3:GetObject", "arn:aws:s3:::b2/k"), Decision::kImplicitDeny);
  EXPECT_EQ(decide_one(reader, "s3:PutObject", "arn:aws:s3:::b/k"), Decision::kImplicitDeny);
}

TEST(Policy, AnExplicitDenyWinsWhereverItStands) {
  for (const char* statements :
       {R"({"Effect":"Allow","Action":"*","Resource":"*"},
           {"Effect":"Deny","Action":"s3:*","Resource":"arn:aws:s3:::secret*"})",
        R"({"Effect":"Deny","Action":"s3:*","Resource":"arn:aws:s3:::secret*"},
           {"Effect":"Allow","Action":"*","Resource":"*"})"}) {
    const Policy mixed = policy(statements);
    EXPECT_EQ(decide_one(mixed, "s3:GetObject", "arn:aws:s3:::secret/k"), Decision::kExplicitDeny);
    EXPECT_EQ(decide_one(mixed, "s3:GetObject", "arn:aws:s3:::open/k"), Decision::kAllowed);
  }
  const Policy allow = Policy::everything();
  const Policy deny = policy(R"({"Effect":"Deny","Action":"s3:*","Resource":"*"})");
  const Policy both[] = {allow, deny};
  EXPECT_EQ(decide(both, {"s3:GetObject", "x"}), Decision::kExplicitDeny);
  EXPECT_EQ(decide(both, {"logs:GetLogEvents", "x"}), Decision::kAllowed);
  EXPECT_EQ(decide({}, {"logs:GetLogEvents", "x"}), Decision::kImplicitDeny);
}

TEST(Policy, ActionsCompareWithoutCaseAndResourcesByteForByte) {
  const Policy reader =
      policy(R"({"Effect":"Allow","Action":"S3:getobject","Resource":"arn:aws:s3:::b/Key"})");
  EXPECT_EQ(decide_one(reader, "s3:GetObject", "arn:aws:s3:::b/Key"), Decision::kAllowed);
  EXPECT_EQ(decide_one(reader, "s3:GetObject", "arn:aws:s3:::b/key"), Decision::kImplicitDeny);
}

TEST(Policy, NotActionAndNotResourceAreAllTheOthers) {
  const Policy others = policy(
      R"({"Effect":"Allow","NotAction":["iam:*","sts:*"],"NotResource":"arn:aws:s3:::secret/*"})");
  EXPECT_EQ(decide_one(others, "s3:GetObject", "arn:aws:s3:::b/k"), Decision::kAllowed);
  EXPECT_EQ(decide_one(others, "iam:GetRole", "arn:aws:s3:::b/k"), Decision::kImplicitDeny);
  EXPECT_EQ(decide_one(others, "s3:GetObject", "arn:aws:s3:::secret/k"), Decision::kImplicitDeny);
}

TEST(Policy, AListingIsBoundToItsPrefixByACondition) {
  const Policy lister = policy(
      R"({"Effect":"Allow","Action":"s3:ListBucket","Resource":"arn:aws:s3:::b",
          "Condition":{"StringLike":{"s3:Prefix":["train/*","train"]}}})");
  EXPECT_EQ(decide_one(lister, "s3:ListBucket", "arn:aws:s3:::b", "train/a"), Decision::kAllowed);
  EXPECT_EQ(decide_one(lister, "s3:ListBucket", "arn:aws:s3:::b", "train"), Decision::kAllowed);
  EXPECT_EQ(decide_one(lister, "s3:ListBucket", "arn:aws:s3:::b", ""), Decision::kImplicitDeny);
  EXPECT_EQ(decide_one(lister, "s3:ListBucket", "arn:aws:s3:::b"), Decision::kImplicitDeny);
}

TEST(Policy, ConditionsOnAnAbsentKeyFollowIam) {
  const auto one = [](std::string_view op, std::string_view value) {
    return policy(R"({"Effect":"Allow","Action":"*","Resource":"*","Condition":{")" +
                  std::string{op} + R"(":{"s3:prefix":)" + std::string{value} + "}}}");
  };
  const auto absent = [&](std::string_view op, std::string_view value) {
    return decide_one(one(op, value), "a:b", "c") == Decision::kAllowed;
  };
  EXPECT_FALSE(absent("StringEquals", R"("x")"));
  EXPECT_TRUE(absent("StringEqualsIfExists", R"("x")"));
  EXPECT_TRUE(absent("StringNotEquals", R"("x")"));
  EXPECT_TRUE(absent("Null", "true"));
  EXPECT_FALSE(absent("Null", R"("false")"));
  EXPECT_FALSE(absent("StringLike", R"("*")"));
  // StringEquals takes the characters as they are.
  EXPECT_EQ(decide_one(one("StringEquals", R"("a*")"), "a:b", "c", "a*"), Decision::kAllowed);
  EXPECT_EQ(decide_one(one("StringEquals", R"("a*")"), "a:b", "c", "ab"), Decision::kImplicitDeny);
}

TEST(Policy, EscapedCharactersStandForThemselves) {
  const std::string key = "we?rd*$na{me}";
  const Policy exact = policy(R"({"Effect":"Allow","Action":"s3:GetObject","Resource":")" +
                              s3_object_arn("b", escape_pattern(key)) + R"("})");
  EXPECT_EQ(decide_one(exact, "s3:GetObject", s3_object_arn("b", key)), Decision::kAllowed);
  EXPECT_EQ(decide_one(exact, "s3:GetObject", s3_object_arn("b", "weXrdY$na{me}")),
            Decision::kImplicitDeny);
}

TEST(Policy, WhatItDoesNotKnowIsRefusedByPlace) {
  const auto error = [](std::string_view text) { return Policy::parse(text).error().message; };
  const auto in_statement = [&](const std::string& members) {
    return error(R"({"Statement":[{"Effect":"Allow","Action":"*","Resource":"*"},{)" + members +
                 "}]}");
  };
  EXPECT_THAT(error("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(error("{"), HasSubstr("policy: "));
  EXPECT_THAT(error("{}"), HasSubstr("Statement: is missing"));
  EXPECT_THAT(error(R"({"Statement":[]})"), HasSubstr("1 to 256"));
  EXPECT_THAT(error(R"({"Version":"2026","Statement":[]})"), HasSubstr("Version"));
  EXPECT_THAT(in_statement(R"("Action":"*","Resource":"*")"),
              HasSubstr("Statement[1]: has no Effect"));
  EXPECT_THAT(in_statement(R"("Effect":"allow","Action":"*","Resource":"*")"),
              HasSubstr("Statement[1].Effect: must be Allow or Deny"));
  EXPECT_THAT(in_statement(R"("Effect":"Deny","Action":"GetObject","Resource":"*")"),
              HasSubstr("service:Action"));
  EXPECT_THAT(in_statement(R"("Effect":"Deny","Action":"*","NotAction":"s3:*","Resource":"*")"),
              HasSubstr("beside its opposite"));
  EXPECT_THAT(in_statement(R"("Effect":"Deny","Principal":"*","Action":"*","Resource":"*")"),
              HasSubstr("Statement[1].Principal: is not supported"));
  EXPECT_THAT(in_statement(R"("Effect":"Deny","Action":"*","Resource":"a/${aws:username}")"),
              HasSubstr("policy variable"));
  EXPECT_THAT(
      in_statement(
          R"("Effect":"Deny","Action":"*","Resource":"*","Condition":{"IpAddress":{"s3:prefix":"1"}})"),
      HasSubstr("Statement[1].Condition.IpAddress: the operator is not supported"));
  EXPECT_THAT(
      in_statement(
          R"("Effect":"Deny","Action":"*","Resource":"*","Condition":{"StringLike":{"aws:x":"1"}})"),
      AllOf(HasSubstr("'aws:x' is not known"), HasSubstr("s3:prefix")));
  EXPECT_THAT(error(std::string(70'000, ' ')), HasSubstr("at most 65536"));
  // The last of two would count, and the restriction be gone.
  EXPECT_THAT(in_statement(R"("Effect":"Deny","Action":"*","Resource":"*","Effect":"Allow")"),
              HasSubstr("the member 'Effect' is there twice"));
}

TEST(Authority, IsTheSumOfItsGrantsEachCutToWhatAllItsPoliciesAllow) {
  const Policy own =
      policy(R"({"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::*/own*"})");
  const Policy creator = policy(
      R"({"Effect":"Allow","Action":"s3:GetObject","Resource":"*"},
         {"Effect":"Deny","Action":"*","Resource":"arn:aws:s3:::b/own-secret"})");
  const Policy role = policy(R"({"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::r/*"},
      {"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/own-secret"})");
  const Authority job{{{own, creator}, {role}}};
  const auto may = [&](std::string_view action, std::string_view resource) {
    return job.decide({action, resource});
  };
  EXPECT_EQ(may("s3:GetObject", "arn:aws:s3:::b/own"), Decision::kAllowed);
  EXPECT_EQ(may("s3:PutObject", "arn:aws:s3:::b/own"), Decision::kImplicitDeny);
  EXPECT_EQ(may("s3:GetObject", "arn:aws:s3:::b/other"), Decision::kImplicitDeny);
  EXPECT_EQ(may("s3:PutObject", "arn:aws:s3:::r/any"), Decision::kAllowed);
  EXPECT_EQ(may("s3:GetObject", "arn:aws:s3:::b/own-secret"), Decision::kExplicitDeny);
  EXPECT_EQ(Authority{}.decide({"a:b", "c"}), Decision::kImplicitDeny);
  EXPECT_EQ(Authority{{{}}}.decide({"a:b", "c"}), Decision::kImplicitDeny);
  EXPECT_EQ(Authority::everything().decide({"a:b", "c"}), Decision::kAllowed);
}

TEST(Policy, ARefusalNamesWhoWhatAndWhere) {
  EXPECT_EQ(refusal_words("arn:aws:iam::0:user/ann", {"s3:GetObject", "arn:aws:s3:::b/k"},
                          Decision::kImplicitDeny),
            "User: arn:aws:iam::0:user/ann is not authorized to perform: s3:GetObject on resource: "
            "arn:aws:s3:::b/k because no identity-based policy allows the s3:GetObject action");
  EXPECT_THAT(refusal_words("arn", {"a:b", "c"}, Decision::kExplicitDeny),
              HasSubstr("with an explicit deny"));
}

// The definition, without a thought for time.
bool matches_plainly(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    return matches_plainly(pattern.substr(1), text) ||
           (!text.empty() && matches_plainly(pattern, text.substr(1)));
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         matches_plainly(pattern.substr(1), text.substr(1));
}

TEST(Patterns, MatchWhatTheirDefinitionMatches) {
  EXPECT_TRUE(rc::check([] {
    const auto letters = [](std::string from) {
      return rc::gen::resize(12, rc::gen::container<std::string>(rc::gen::elementOf(from)));
    };
    const std::string pattern = *letters("ab*?");
    const std::string text = *letters("ab");
    RC_ASSERT(internal::Pattern::parse(pattern).value().matches(text) ==
              matches_plainly(pattern, text));
  }));
}

TEST(Patterns, AnEscapedTextMatchesItselfAlone) {
  EXPECT_TRUE(rc::check([](const std::string& text) {
    const internal::Pattern pattern = internal::Pattern::parse(escape_pattern(text)).value();
    RC_ASSERT(pattern.matches(text));
    RC_ASSERT(!pattern.matches(text + "a"));
  }));
}

TEST(Patterns, ManyStarsTakeNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "a*";
  EXPECT_FALSE(internal::Pattern::parse(pattern + "b").value().matches(std::string(2000, 'a')));
}

TEST(Policy, ActsAsOfItsOwnerWhoeverAsks) {
  const Policy mine = policy(
      R"({"Effect":"Allow","Action":"*","Resource":"*"},
         {"Effect":"Deny","Action":"s3:*","Resource":"*",
          "Condition":{"ArnLike":{"aws:PrincipalArn":"arn:aws:iam::0:user/ann"}}},
         {"Effect":"Deny","Action":"logs:*","Resource":"*",
          "Condition":{"Null":{"aws:PrincipalArn":"true"}}})");
  const std::pair<std::string_view, std::string_view> job[] = {
      {"aws:PrincipalArn", "arn:aws:sts::0:assumed-role/r/job"}};
  EXPECT_EQ(mine.decide({"s3:GetObject", "x", job}), Decision::kAllowed);
  const Policy of_ann = mine.as_of("arn:aws:iam::0:user/ann");
  EXPECT_EQ(of_ann.decide({"s3:GetObject", "x", job}), Decision::kExplicitDeny);
  EXPECT_EQ(of_ann.decide({"logs:GetLogEvents", "x"}), Decision::kAllowed);
  EXPECT_EQ(of_ann.decide({"sqs:Send", "x", job}), Decision::kAllowed);
}

TEST(Policy, ThatSaysNothingAllowsAndDeniesNothing) {
  EXPECT_EQ(Policy::nothing().decide({"s3:GetObject", "x"}), Decision::kImplicitDeny);
  const Authority cut{{{Policy::everything(), Policy::nothing()}}};
  EXPECT_EQ(cut.decide({"s3:GetObject", "x"}), Decision::kImplicitDeny);
}

TEST(Policy, TellsWhetherAnActionCanBeAllowedOnAnything) {
  const Policy reader =
      policy(R"({"Effect":"Allow","Action":"s3:Get*","Resource":"arn:aws:s3:::b/*"},
                {"Effect":"Deny","Action":"s3:DeleteObject","Resource":"*"})");
  EXPECT_TRUE(reader.could_allow("s3:GetObject"));
  EXPECT_FALSE(reader.could_allow("s3:DeleteObject"));
  EXPECT_FALSE((Authority{{{reader, Policy::nothing()}}}.could_allow("s3:GetObject")));
  EXPECT_FALSE(Authority{}.could_allow("s3:GetObject"));
}

}  // namespace
}  // namespace atelier::access
