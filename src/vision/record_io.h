// MXNet's image RecordIO: pictures with their labels, one behind the other in one file.
//
// A record is u32 magic 0xced7230a, u32 (kind << 29 | length), the payload, zeros up to a multiple
// of 4; kind 0 is a whole record. Where the payload holds the magic number at a multiple of 4, it
// is cut there into parts of kind 1 (first), 2 and 3 (last), and the number itself is left out. The
// payload is u32 flag, f32 label, u64 id, u64 id2, then `flag` more f32 labels when it is not 0,
// then the picture as a file. All little-endian. (dmlc-core recordio.h, MXNet image_recordio.h.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"

namespace atelier::vision {

// Reads up to the size of the buffer from `offset` on; fewer only at the end of the file.
using ReadAt =
    std::function<Result<std::size_t>(std::uint64_t offset, std::span<std::byte> buffer)>;

struct RecordLimits {
  std::uint64_t max_picture_bytes = std::uint64_t{256} << 20;
  std::uint32_t max_labels = 100'000;
  std::size_t max_records = 50'000'000;
};

struct Record {
  std::uint64_t offset = 0;  // of its first part
  std::uint64_t bytes = 0;   // of all of its parts, as they lie in the file
  std::vector<float> labels;
};

// Walks over a file by its headers, without the pictures. kDataLoss names the offset where it stops
// being RecordIO.
Result<std::vector<Record>> index_records(const ReadAt& read, const RecordLimits& limits = {});

// The picture within the bytes of one record, which are moved together in place when it came in
// parts.
Result<std::span<const std::byte>> picture_of_record(std::span<std::byte> record);

}  // namespace atelier::vision
