// Bytes as a RecordIO file: whatever they are, every record that is indexed has its picture within
// it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "vision/record_io.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;
  const auto file = std::as_bytes(std::span(data, size));
  const vision::ReadAt read = [&](std::uint64_t offset,
                                  std::span<std::byte> buffer) -> Result<std::size_t> {
    if (offset >= file.size()) return std::size_t{0};
    const std::size_t count = std::min<std::size_t>(buffer.size(), file.size() - offset);
    std::memcpy(buffer.data(), file.data() + offset, count);
    return count;
  };
  const auto records = vision::index_records(read, {.max_picture_bytes = 1 << 20});
  if (!records) return 0;
  for (const vision::Record& record : *records) {
    const auto raw = file.subspan(record.offset, record.bytes);
    std::vector<std::byte> copy(raw.begin(), raw.end());
    const auto picture = vision::picture_of_record(copy);
    if (!picture) continue;
    ATELIER_CHECK(picture->data() >= copy.data() &&
                      picture->data() + picture->size() <= copy.data() + copy.size(),
                  "a picture lies outside of its record");
  }
  return 0;
}
