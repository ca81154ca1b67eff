#include "cli/results.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"

namespace atelier::cli {
namespace {

int shell(const std::string& command) { return std::system(command.c_str()); }

TEST(Results, AnArchiveIsUnpackedBelowItsFolder) {
  const TempFolder folder = *TempFolder::create();
  const std::string at = folder.path().string();
  ASSERT_EQ(shell("mkdir -p " + at + "/in/sub && echo a > " + at + "/in/sub/a && tar czf " + at +
                  "/x.tar.gz -C " + at + "/in ."),
            0);
  const auto files = *unpack_archive(folder.path() / "x.tar.gz", folder.path() / "out");
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(*read_file(folder.path() / "out/sub/a"), "a\n");
}

TEST(Results, AMemberThatWouldLandElsewhereIsRefused) {
  const TempFolder folder = *TempFolder::create();
  const std::string at = folder.path().string();
  ASSERT_EQ(shell("mkdir -p " + at + "/in/sub && echo a > " + at + "/evil && tar cPzf " + at +
                  "/x.tar.gz -C " + at + "/in/sub ../../evil"),
            0);
  EXPECT_EQ(unpack_archive(folder.path() / "x.tar.gz", folder.path() / "a/b/out").error().code,
            Code::kDataLoss);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "a/evil"));
}

TEST(Results, ATornArchiveAndALinkInTheWayHarmNothing) {
  const TempFolder folder = *TempFolder::create();
  const std::string at = folder.path().string();
  ASSERT_EQ(shell("mkdir -p " + at + "/in " + at + "/out && head -c 200000 /dev/urandom > " + at +
                  "/in/a && tar czf " + at + "/x.tar.gz -C " + at + "/in a && head -c 9000 " + at +
                  "/x.tar.gz > " + at + "/torn.tar.gz"),
            0);
  EXPECT_EQ(unpack_archive(folder.path() / "torn.tar.gz", folder.path() / "torn").error().code,
            Code::kDataLoss);
  ASSERT_TRUE(write_file_durably(folder.path() / "mine", "precious"));
  ASSERT_EQ(shell("ln -s " + at + "/mine " + at + "/out/a"), 0);
  ASSERT_TRUE(unpack_archive(folder.path() / "x.tar.gz", folder.path() / "out"));
  EXPECT_EQ(*read_file(folder.path() / "mine"), "precious");
}

}  // namespace
}  // namespace atelier::cli
