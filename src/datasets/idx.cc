#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "datasets/internal/idx.h"

namespace atelier::datasets {
namespace {

constexpr std::size_t kMaxHeader = 4 + 4 * 255;

Result<std::string> gunzip(std::string_view bytes, std::size_t max_size) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK)
    return Error{Code::kResourceExhausted, "gzip: no memory"};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  int status = Z_OK;
  while (status == Z_OK && out.size() <= max_size) {
    const std::size_t have = out.size();
    out.resize(have + std::clamp<std::size_t>(have, 1 << 16, 1 << 24));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + have);
    stream.avail_out = static_cast<uInt>(out.size() - have);
    status = inflate(&stream, Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (out.size() > max_size)
    return Error{Code::kResourceExhausted, fmt::format("gzip: more than {} bytes", max_size)};
  if (status != Z_STREAM_END) return Error{Code::kDataLoss, "gzip: damaged or cut short"};
  return out;
}

std::uint32_t big_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

Result<Idx> parse_idx(std::string_view bytes, std::size_t max_values) {
  std::string unpacked;
  if (bytes.starts_with("\x1f\x8b")) {
    unpacked = TRY(gunzip(bytes, max_values + kMaxHeader));
    bytes = unpacked;
  }
  if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0)
    return Error{Code::kInvalidArgument, "not an idx file"};
  if (bytes[2] != 8) {
    return Error{Code::kUnimplemented,
                 fmt::format("idx of type 0x{:02x}; bytes (0x08) are known", bytes[2])};
  }
  const auto dimensions = static_cast<unsigned char>(bytes[3]);
  const std::size_t header = 4 + 4 * std::size_t{dimensions};
  if (bytes.size() < header) return Error{Code::kDataLoss, "idx: cut short in the header"};
  Idx idx;
  std::uint64_t count = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    idx.shape.push_back(big_endian(bytes, 4 + 4 * i));
    if (__builtin_mul_overflow(count, std::uint64_t{idx.shape.back()}, &count) ||
        count > max_values) {
      return Error{Code::kResourceExhausted, fmt::format("idx: more than {} values", max_values)};
    }
  }
  if (bytes.size() - header != count) {
    return Error{Code::kDataLoss,
                 fmt::format("idx: {} values, its shape says {}", bytes.size() - header, count)};
  }
  idx.values = bytes.substr(header);
  return idx;
}

}  // namespace atelier::datasets
