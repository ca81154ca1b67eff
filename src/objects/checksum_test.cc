#include "objects/checksum.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace atelier::objects {
namespace {

std::string random_bytes(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(rng(seed, 0, i));
  return bytes;
}

std::string hex(ChecksumKind kind, std::string_view bytes) {
  Checksummer summer{kind};
  summer.update(bytes);
  return to_hex(summer.finish());
}

TEST(Checksum, EqualsThePublishedCheckValues) {
  // "check" of the catalogue of parametrised CRC algorithms (reveng): over "123456789".
  EXPECT_EQ(hex(ChecksumKind::kCrc32, "123456789"), "cbf43926");
  EXPECT_EQ(hex(ChecksumKind::kCrc32c, "123456789"), "e3069283");
  EXPECT_EQ(hex(ChecksumKind::kCrc64Nvme, "123456789"), "ae8b14860a799888");
  EXPECT_EQ(hex(ChecksumKind::kSha1, "abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(hex(ChecksumKind::kSha256, "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Checksum, OfPiecesEqualsThatOfTheWholeWhereverItIsCut) {
  const std::string bytes = random_bytes(1000, 1);
  for (const ChecksumKind kind : kChecksumKinds) {
    const std::string whole = checksum_base64(kind, bytes);
    for (std::size_t cut = 0; cut <= bytes.size(); cut += 37) {
      Checksummer summer{kind};
      summer.update(std::string_view{bytes}.substr(0, cut));
      summer.update(std::string_view{bytes}.substr(cut));
      EXPECT_EQ(to_base64(summer.finish()), whole) << checksum_name(kind) << " cut at " << cut;
    }
  }
}

TEST(Checksum, OfTheFullObjectComesFromThoseOfTheParts) {
  const std::vector<std::string> parts = {random_bytes(70001, 2), random_bytes(1, 3), "",
                                          random_bytes(5000, 4)};
  for (const ChecksumKind kind : kChecksumKinds) {
    std::string all;
    std::vector<PartChecksum> sums;
    for (const std::string& part : parts) {
      all += part;
      sums.push_back({checksum_base64(kind, part), part.size()});
    }
    const Result<Checksum> whole = combine_checksums(kind, false, sums);
    ASSERT_EQ(whole.has_value(), is_crc(kind));
    if (whole) {
      EXPECT_EQ(whole->value, checksum_base64(kind, all)) << checksum_name(kind);
    }
    const Result<Checksum> composite = combine_checksums(kind, true, sums);
    ASSERT_TRUE(composite);
    EXPECT_TRUE(composite->value.ends_with("-4"));
  }
}

TEST(Checksum, IsTheSameWithAndWithoutCarryLessMultiplication) {
  const std::string all = random_bytes(70'000, 5);
  const std::span<const std::byte> bytes = std::as_bytes(std::span{all.data(), all.size()});
  for (const ChecksumKind kind : kChecksumKinds) {
    if (!is_crc(kind)) continue;
    for (std::uint64_t round = 0; round < 2000; ++round) {
      const std::size_t most = round % 10 == 0 ? 60'000 : 700;
      const auto part = bytes.subspan(rng(round, 1, 0) % 64, rng(round, 2, 0) % most);
      const std::uint64_t before = crc_update_portable(kind, 0, part.first(part.size() / 3));
      ASSERT_EQ(crc_update(kind, before, part), crc_update_portable(kind, before, part))
          << checksum_name(kind) << " over " << part.size() << " bytes, round " << round;
    }
  }
}

TEST(Checksum, RefusesAPartWhoseValueHasAnotherLength) {
  EXPECT_FALSE(combine_checksums(ChecksumKind::kCrc32, true, {{"AAAA", 1}}));
  EXPECT_FALSE(combine_checksums(ChecksumKind::kCrc32, true, {{"***", 1}}));
}

}  // namespace
}  // namespace atelier::objects
