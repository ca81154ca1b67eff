#include "vision/record_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "vision/record_io_test.h"

namespace atelier::vision {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ReadAt reader_of(const std::string& file) {
  return [&file](std::uint64_t offset, std::span<std::byte> buffer) -> Result<std::size_t> {
    if (offset >= file.size()) return std::size_t{0};
    const std::size_t count = std::min<std::size_t>(buffer.size(), file.size() - offset);
    std::memcpy(buffer.data(), file.data() + offset, count);
    return count;
  };
}

std::string picture_at(std::string file, const Record& record) {
  const auto bytes = std::as_writable_bytes(std::span(file)).subspan(record.offset, record.bytes);
  const auto picture = picture_of_record(bytes);
  if (!picture) return picture.error().message;
  return {reinterpret_cast<const char*>(picture->data()), picture->size()};
}

std::string refusal(const std::string& file, const RecordLimits& limits = {}) {
  const auto records = index_records(reader_of(file), limits);
  return records ? "accepted" : records.error().message;
}

TEST(RecordIo, FindsEveryPictureWithItsLabels) {
  const std::string file =
      record_of({3}, "first") + record_of({0, 1, 1}, "second, of 17 by") + record_of({2}, "");
  const auto records = index_records(reader_of(file));
  ASSERT_TRUE(records) << records.error().message;
  ASSERT_EQ(records->size(), 3U);
  EXPECT_THAT((*records)[0].labels, ElementsAre(3));
  EXPECT_THAT((*records)[1].labels, ElementsAre(0, 1, 1));
  EXPECT_EQ(picture_at(file, (*records)[0]), "first");
  EXPECT_EQ(picture_at(file, (*records)[1]), "second, of 17 by");
  EXPECT_EQ(picture_at(file, (*records)[2]), "");
}

TEST(RecordIo, JoinsPartsWhereThePictureHoldsTheMagicNumber) {
  const std::string magic = magic_bytes();
  for (const std::string& picture :
       {magic, "abcd" + magic + "efgh", magic + magic + "tail", "abcd" + magic, "ab" + magic}) {
    const std::string file = record_of({1}, picture) + record_of({2}, "after");
    const auto records = index_records(reader_of(file));
    ASSERT_TRUE(records) << records.error().message;
    ASSERT_EQ(records->size(), 2U);
    EXPECT_EQ(picture_at(file, (*records)[0]), picture);
    EXPECT_EQ(picture_at(file, (*records)[1]), "after");
  }
}

TEST(RecordIo, WhatIsNoneIsRefusedByItsOffset) {
  const std::string good = record_of({1}, "picture!");
  EXPECT_EQ(refusal("GIF89a, and more bytes"),
            "RecordIO at byte 0: a record begins with 0xced7230a, found is 0x38464947");
  EXPECT_THAT(refusal(good + "abcdefgh"),
              HasSubstr(fmt::format("RecordIO at byte {}: a record begins", good.size())));
  EXPECT_THAT(refusal(good + "abc"), HasSubstr("a header is cut short"));
  for (std::size_t size = 1; size < good.size(); ++size) {
    EXPECT_THAT(refusal(good.substr(0, size)), HasSubstr("RecordIO at byte")) << size;
  }
  EXPECT_THAT(refusal(part_of(2, std::string(32, 'x'))), HasSubstr("lacks its beginning"));
  EXPECT_THAT(refusal(part_of(1, std::string(32, '\0')) + good), HasSubstr("within another"));
  EXPECT_THAT(refusal(part_of(1, std::string(32, '\0'))), HasSubstr("ends within a record"));
  EXPECT_THAT(refusal(part_of(5, std::string(32, 'x'))), HasSubstr("kind 5 is unknown"));
  EXPECT_THAT(refusal(part_of(0, "short")),
              HasSubstr("a record of 5 bytes; the header of a picture alone has 24"));
}

// Whatever a byte is changed to, what is found lies within the file and nothing is read beside it.
TEST(RecordIo, NoChangedByteLeadsOutOfTheFile) {
  const std::string good = record_of({1}, "ab" + magic_bytes() + "cd") +
                           record_of({0, 1, 1}, "abcd" + magic_bytes() + "efgh");
  std::size_t accepted = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const unsigned value : {0U, 1U, 3U, 0x20U, 0x7fU, 0xffU}) {
      std::string file = good;
      file[at] = static_cast<char>(value);
      const auto records = index_records(reader_of(file));
      if (!records) continue;
      ++accepted;
      for (const Record& record : *records) {
        ASSERT_LE(record.offset + record.bytes, file.size());
        std::string raw = file.substr(record.offset, record.bytes);
        const auto picture = picture_of_record(std::as_writable_bytes(std::span(raw)));
        if (picture) {
          ASSERT_LE(picture->size(), raw.size());
        }
      }
    }
  }
  EXPECT_GT(accepted, 0U);
}

TEST(RecordIo, IsBounded) {
  std::string many_labels(24, '\0');
  many_labels[3] = '\x7f';
  EXPECT_THAT(refusal(part_of(0, many_labels)),
              HasSubstr("labels; a record of 24 bytes has at most 0"));
  const std::string good = record_of({1}, std::string(100, 'p'));
  EXPECT_THAT(refusal(good, {.max_picture_bytes = 64}), HasSubstr("more than 64 bytes"));
  EXPECT_THAT(refusal(good + good, {.max_records = 1}), HasSubstr("more than 1 records"));
}

}  // namespace
}  // namespace atelier::vision
