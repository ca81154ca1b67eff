#include "api/text.h"

#include <gtest/gtest.h>

namespace atelier::api {
namespace {

TEST(Text, KeepsValidTextAsItIs) {
  const std::string text = "a\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80";  // a, two, three, four bytes
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_EQ(to_valid_utf8(text), text);
  EXPECT_EQ(count_characters(text), 4U);
}

TEST(Text, RefusesWhatIsNotACharacter) {
  for (const char* bad : {"\xFF", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xF0\x80\x80\x80", "\xC3", "\xE2\x82", "\x80", "\xC3("}) {
    EXPECT_FALSE(is_valid_utf8(bad));
    EXPECT_TRUE(is_valid_utf8(to_valid_utf8(bad)));
  }
}

TEST(Text, ReplacesEachBadByteAndNothingElse) {
  EXPECT_EQ(to_valid_utf8("a\xFF\xFE\x62\xC3\xBC\xE2\x82"),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\x62\xC3\xBC\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Text, FindsABadByteWhereverItIs) {
  for (std::size_t at = 0; at < 40; ++at) {
    std::string text(40, 'a');
    EXPECT_TRUE(is_valid_utf8(text));
    text[at] = '\xC3';
    EXPECT_FALSE(is_valid_utf8(text)) << at;
    if (at == 39) continue;
    text[at + 1] = '\xBC';
    EXPECT_TRUE(is_valid_utf8(text)) << at;
  }
}

TEST(Text, CutsBetweenCharacters) {
  EXPECT_EQ(cut_text("\xC3\xBC\xC3\xBC\xC3\xBC", 2), "\xC3\xBC\xC3\xBC");
  EXPECT_EQ(cut_text("abc", 3), "abc");
  EXPECT_EQ(cut_text("abc", 0), "");
}

}  // namespace
}  // namespace atelier::api
