#include "cli/terminal.h"

#include <gtest/gtest.h>

namespace atelier::cli {
namespace {

TEST(Terminal, UnitsReadLikePeopleWriteThem) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1.5 * 1024 * 1024), "1.5 MiB");
  EXPECT_EQ(format_count(70000), "70,000");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_duration(std::chrono::seconds{12}), "12 s");
  EXPECT_EQ(format_duration(std::chrono::seconds{185}), "3 min 05 s");
  EXPECT_EQ(format_duration(std::chrono::seconds{3720}), "1 h 02 min");
}

TEST(Terminal, NamesOfStrangersCannotSteerTheTerminal) {
  EXPECT_EQ(printable("a\x1b[2J\nb\x7f \xc3\xa9"), "a\\x1b[2J\\x0ab\\x7f \xc3\xa9");
  EXPECT_EQ(printable("a\xc2\x9b"
                      "2J\xc2\xa9\xc2"),
            "a\\x9b2J\xc2\xa9\xc2");
  EXPECT_EQ(printable("a\tb\nc\x1b[m", "\t\n"), "a\tb\nc\\x1b[m");
}

TEST(Terminal, ColourIsOnlyAddedWhenAsked) {
  EXPECT_EQ(styled("x", Style::kRed, false), "x");
  EXPECT_EQ(styled("x", Style::kRed, true), "\x1b[31mx\x1b[0m");
}

}  // namespace
}  // namespace atelier::cli
