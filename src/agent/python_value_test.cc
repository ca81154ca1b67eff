#include "agent/python_value.h"

#include <gtest/gtest.h>

namespace atelier::agent {
namespace {

std::string shown(std::string_view text) {
  Result<PythonValue> value = parse_python_json(text);
  return value ? python_str(*value) : "error: " + value.error().message;
}

std::string dumped(std::string_view text) {
  Result<PythonValue> value = parse_python_json(text);
  return value ? python_dumps(*value) : "error: " + value.error().message;
}

TEST(PythonValue, FloatsPrintAsPythonPrintsThem) {
  EXPECT_EQ(shown("1e-05"), "1e-05");
  EXPECT_EQ(shown("0.0001"), "0.0001");
  EXPECT_EQ(shown("1E400"), "inf");
  EXPECT_EQ(shown("-1E400"), "-inf");
  EXPECT_EQ(shown("1e16"), "1e+16");
  EXPECT_EQ(shown("1e15"), "1000000000000000.0");
  EXPECT_EQ(shown("123456789.125"), "123456789.125");
  EXPECT_EQ(shown("-0.0"), "-0.0");
  EXPECT_EQ(shown("5e-324"), "5e-324");
  EXPECT_EQ(shown("NaN"), "nan");
  EXPECT_EQ(dumped("[NaN, Infinity, -Infinity, 1.0]"), "[NaN,Infinity,-Infinity,1.0]");
}

TEST(PythonValue, IntegersKeepEveryDigit) {
  EXPECT_EQ(shown("123456789012345678901234567890"), "123456789012345678901234567890");
  EXPECT_EQ(shown("-0"), "0");
  EXPECT_FALSE(parse_python_json(std::string(4301, '9')));
  EXPECT_TRUE(parse_python_json(std::string(4300, '9')));
}

TEST(PythonValue, WhatPythonRefusesIsRefused) {
  for (const char* text : {"",
                           " ",
                           "01",
                           "1.",
                           ".5",
                           "+1",
                           "1e",
                           "'a'",
                           "[1,]",
                           "{\"a\":1,}",
                           "tru",
                           "\"a\nb\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "[1",
                           "{\"a\"}",
                           "{1:2}",
                           "nan",
                           "1 2",
                           "\xEF\xBB\xBF"
                           "1",
                           "\"",
                           "\"\\"}) {
    EXPECT_FALSE(parse_python_json(text)) << text;
  }
  EXPECT_FALSE(parse_python_json(std::string(5000, '[')));
}

TEST(PythonValue, NestedValuesPrintByRepr) {
  EXPECT_EQ(shown(R"([1, true, null, "a", {"b": [false]}])"),
            "[1, True, None, 'a', {'b': [False]}]");
  EXPECT_EQ(shown(R"(["it's", "say \"x\"", "both ' and \"", "a\\b\n\t\u0001"])"),
            R"(["it's", 'say "x"', 'both \' and "', 'a\\b\n\t\x01'])");
  EXPECT_EQ(shown(R"(["\u00e9\u200b\ud83d\ude00\ud800\u007f"])"), "['é\\u200b😀\\ud800\\x7f']");
}

TEST(PythonValue, ARepeatedNameKeepsItsPlaceAndTakesTheLastValue) {
  EXPECT_EQ(shown(R"({"b": 1, "a": 2, "b": 3})"), "{'b': 3, 'a': 2}");
}

TEST(PythonValue, DumpsSortsAndEscapes) {
  EXPECT_EQ(dumped(R"({"b": "é😀\u007f/\b", "a": 1e-7})"),
            "{\"a\":1e-07,\"b\":\"\\u00e9\\ud83d\\ude00\\u007f/\\b\"}");
}

TEST(PythonValue, UpperCaseFollowsUnicode) {
  EXPECT_EQ(python_upper("lr-é_ßﬁ ÿ я"), "LR-É_SSFI Ÿ Я");
  EXPECT_EQ(python_length("é😀a"), 3U);
}

TEST(PythonValue, ShellQuoteIsShlexQuote) {
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("a/b-c_1.py"), "a/b-c_1.py");
  EXPECT_EQ(shell_quote("it's $x"), "'it'\"'\"'s $x'");
  EXPECT_EQ(shell_quote("é"), "'é'");
}

}  // namespace
}  // namespace atelier::agent
