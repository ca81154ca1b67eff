#include "objects/internal/file_ranges.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/file.h"

namespace atelier::objects::internal {
namespace {

TEST(GatheredWriter, WritesWhatCameInPiecesOfAnySize) {
  const TempFolder folder = *TempFolder::create();
  std::mt19937 random(5);
  for (const std::size_t offset : {0, 1, 4096, 300'000}) {
    const auto path = folder.path() / std::to_string(offset);
    const UniqueFd fd = *open_file(path, O_RDWR | O_CREAT | O_EXCL);
    std::string expected(offset, '\0');
    GatheredWriter writer(fd.get(), offset);
    while (expected.size() < offset + 3'000'000) {
      std::string piece(random() % (random() % 8 == 0 ? 700'000 : 20'000), '\0');
      for (char& c : piece) c = static_cast<char>(random());
      ASSERT_TRUE(writer.write(std::as_bytes(std::span(piece))));
      expected += piece;
    }
    ASSERT_TRUE(writer.flush());
    ASSERT_TRUE(writer.flush());  // nothing more
    EXPECT_TRUE(read_file(path).value() == expected) << "from " << offset;
  }
}

TEST(GatheredWriter, SaysThatADiskIsFull) {
  const UniqueFd fd = *open_file("/dev/full", O_WRONLY);
  GatheredWriter writer(fd.get(), 0);
  ASSERT_TRUE(writer.write(std::as_bytes(std::span("kept back", 9))));
  EXPECT_FALSE(writer.flush());
  const std::string much(1 << 20, 'x');
  EXPECT_FALSE(writer.write(std::as_bytes(std::span(much))));
}

TEST(GatheredWriter, OfNothingWritesNothing) {
  const TempFolder folder = *TempFolder::create();
  const UniqueFd fd = *open_file(folder.path() / "empty", O_RDWR | O_CREAT | O_EXCL);
  GatheredWriter writer(fd.get(), 7);
  ASSERT_TRUE(writer.write({}));
  ASSERT_TRUE(writer.flush());
  EXPECT_EQ(read_file(folder.path() / "empty").value(), "");
}

}  // namespace
}  // namespace atelier::objects::internal
