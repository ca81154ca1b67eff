#include "vision/record_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace atelier::vision {
namespace {

constexpr std::uint32_t kMagic = 0xced7230a;
constexpr std::size_t kPartHeader = 8;
constexpr std::size_t kImageHeader = 24;

enum Kind : std::uint32_t { kWhole = 0, kFirst = 1, kMiddle = 2, kLast = 3 };

std::uint32_t u32_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

Error broken(std::uint64_t offset, std::string_view what) {
  return Error{Code::kDataLoss, fmt::format("RecordIO at byte {}: {}", offset, what)};
}

struct Part {
  Kind kind = kWhole;
  std::uint32_t length = 0;
  [[nodiscard]] std::uint64_t span() const {
    return kPartHeader + (std::uint64_t{length} + 3) / 4 * 4;
  }
};

Result<Part> parse_part(std::span<const std::byte> header, std::uint64_t offset) {
  if (header.size() < kPartHeader) return broken(offset, "a header is cut short");
  const std::uint32_t magic = u32_at(header, 0);
  if (magic != kMagic) {
    return broken(offset,
                  fmt::format("a record begins with {:#010x}, found is {:#010x}", kMagic, magic));
  }
  const std::uint32_t word = u32_at(header, 4);
  if (word >> 29 > kLast) return broken(offset, fmt::format("kind {} is unknown", word >> 29));
  return Part{static_cast<Kind>(word >> 29), word & 0x1fffffff};
}

Result<void> check_order(bool inside, Kind kind, std::uint64_t offset) {
  const bool continues = kind == kMiddle || kind == kLast;
  if (continues == inside) return {};
  return broken(offset, inside ? "a record begins within another" : "a record lacks its beginning");
}

// Reads all that is asked for, or says where the file ends.
Result<void> read_exactly(const ReadAt& read, std::uint64_t offset, std::span<std::byte> buffer) {
  const std::size_t got = TRY(read(offset, buffer));
  if (got == buffer.size()) return {};
  return broken(offset + got, "the file ends within a record");
}

// The labels in the first bytes of the first part.
Result<std::vector<float>> read_labels(const ReadAt& read, std::uint64_t offset, const Part& part,
                                       std::span<const std::byte> head,
                                       const RecordLimits& limits) {
  if (part.length < kImageHeader) {
    return broken(offset, fmt::format("a record of {} bytes; the header of a picture alone has {}",
                                      part.length, kImageHeader));
  }
  if (head.size() < kPartHeader + kImageHeader) {
    return broken(offset + head.size(), "the file ends within a record");
  }
  const std::uint32_t count = u32_at(head, kPartHeader);
  if (count == 0) {
    std::vector<float> one(1);
    std::memcpy(one.data(), head.data() + kPartHeader + 4, sizeof(float));
    return one;
  }
  if (count > limits.max_labels || std::uint64_t{count} * 4 > part.length - kImageHeader) {
    return broken(
        offset,
        fmt::format("{} labels; a record of {} bytes has at most {}", count, part.length,
                    std::min<std::uint64_t>(limits.max_labels, (part.length - kImageHeader) / 4)));
  }
  std::vector<float> labels(count);
  TRY(read_exactly(read, offset + kPartHeader + kImageHeader,
                   std::as_writable_bytes(std::span(labels))));
  return labels;
}

}  // namespace

Result<std::vector<Record>> index_records(const ReadAt& read, const RecordLimits& limits) {
  std::vector<Record> records;
  bool inside = false;
  std::uint64_t offset = 0;
  for (;;) {
    std::array<std::byte, kPartHeader + kImageHeader> buffer;
    const std::size_t got = TRY(read(offset, buffer));
    if (got == 0) break;
    const std::span<const std::byte> head = std::span(buffer).first(got);
    const Part part = TRY(parse_part(head, offset));
    TRY(check_order(inside, part.kind, offset));
    if (!inside) {
      if (records.size() >= limits.max_records) {
        return Error{Code::kResourceExhausted,
                     fmt::format("RecordIO: more than {} records", limits.max_records)};
      }
      records.push_back({offset, 0, TRY(read_labels(read, offset, part, head, limits))});
    }
    Record& record = records.back();
    record.bytes += part.span();
    if (record.bytes > limits.max_picture_bytes) {
      return Error{Code::kResourceExhausted,
                   fmt::format("RecordIO at byte {}: a record of more than {} bytes", record.offset,
                               limits.max_picture_bytes)};
    }
    // The last byte says whether all of the part is there.
    std::array<std::byte, 1> last;
    TRY(read_exactly(read, offset + part.span() - 1, last));
    inside = part.kind == kFirst || part.kind == kMiddle;
    offset += part.span();
  }
  if (inside) return broken(offset, "the file ends within a record");
  return records;
}

Result<std::span<const std::byte>> picture_of_record(std::span<std::byte> record) {
  std::size_t read_at = 0;
  std::size_t payload = 0;
  bool inside = false;
  do {
    const Part part = TRY(parse_part(record.subspan(read_at), read_at));
    TRY(check_order(inside, part.kind, read_at));
    if (part.span() > record.size() - read_at) return broken(read_at, "a part is cut short");
    if (inside) {
      // Where it was cut there stood the magic number. The header that is passed over leaves room.
      std::memcpy(record.data() + payload, &kMagic, sizeof(kMagic));
      payload += sizeof(kMagic);
    }
    std::memmove(record.data() + payload, record.data() + read_at + kPartHeader, part.length);
    payload += part.length;
    read_at += part.span();
    inside = part.kind == kFirst || part.kind == kMiddle;
  } while (inside && read_at < record.size());
  if (inside) return broken(read_at, "the last part is missing");
  if (payload < kImageHeader) return broken(0, "no picture's header");
  const std::uint64_t labels = std::uint64_t{u32_at(record, 0)} * 4;
  if (labels > payload - kImageHeader) return broken(0, "more labels than bytes");
  return std::span<const std::byte>(record).subspan(kImageHeader + labels,
                                                    payload - kImageHeader - labels);
}

}  // namespace atelier::vision
