#include "vision/internal/zip_directory.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace atelier::vision {
namespace {

using Bytes = std::span<const std::byte>;
using Directory = std::map<std::string, Bytes, std::less<>>;

constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64LocatorSignature = 0x07064b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::size_t kEndSize = 22;
constexpr std::size_t kCentralSize = 46;
constexpr std::size_t kLocalSize = 30;

Error damaged(std::string_view what) {
  return Error{Code::kDataLoss, fmt::format("zip archive: {}", what)};
}

template <typename Integer>
Result<Integer> load(Bytes bytes, std::uint64_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(Integer))
    return damaged("a record lies outside of the file");
  Integer value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

Result<Bytes> slice(Bytes bytes, std::uint64_t at, std::uint64_t size) {
  if (at > bytes.size() || bytes.size() - at < size)
    return damaged("a record lies outside of the file");
  return bytes.subspan(at, size);
}

struct Extent {
  std::uint64_t entries = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;
};

// Where the central directory is: the end record is within the last 64 KiB + 22 bytes.
Result<Extent> find_directory(Bytes archive) {
  if (archive.size() < kEndSize) return damaged("too short");
  const std::uint64_t lowest =
      archive.size() - std::min<std::uint64_t>(archive.size(), kEndSize + 0xffff);
  for (std::uint64_t at = archive.size() - kEndSize + 1; at-- > lowest;) {
    if (TRY(load<std::uint32_t>(archive, at)) != kEndSignature) continue;
    Extent extent{TRY(load<std::uint16_t>(archive, at + 10)),
                  TRY(load<std::uint32_t>(archive, at + 12)),
                  TRY(load<std::uint32_t>(archive, at + 16))};
    const bool locator =
        at >= 20 && TRY(load<std::uint32_t>(archive, at - 20)) == kEnd64LocatorSignature;
    if (locator) {
      const std::uint64_t end64 = TRY(load<std::uint64_t>(archive, at - 20 + 8));
      if (TRY(load<std::uint32_t>(archive, end64)) != kEnd64Signature)
        return damaged("no zip64 record at its place");
      extent = {TRY(load<std::uint64_t>(archive, end64 + 32)),
                TRY(load<std::uint64_t>(archive, end64 + 40)),
                TRY(load<std::uint64_t>(archive, end64 + 48))};
    }
    return extent;
  }
  return damaged("no end record; the file is cut short");
}

struct Entry {
  std::string name;
  std::uint32_t crc = 0;
  std::uint64_t size = 0;
  std::uint64_t local = 0;
};

// The zip64 extra field holds those of (size, packed size, offset) that are all ones in the record,
// in this order.
Result<void> apply_zip64(Bytes extra, std::uint64_t& size, std::uint64_t& packed,
                         std::uint64_t& local) {
  std::uint64_t at = 0;
  while (at + 4 <= extra.size()) {
    const auto id = TRY(load<std::uint16_t>(extra, at));
    const auto length = TRY(load<std::uint16_t>(extra, at + 2));
    if (id == 1) {
      const Bytes field = TRY(slice(extra, at + 4, length));
      std::uint64_t in_field = 0;
      for (std::uint64_t* value : {&size, &packed, &local}) {
        if (*value != 0xffffffff) continue;
        *value = TRY(load<std::uint64_t>(field, in_field));
        in_field += 8;
      }
      return {};
    }
    at += 4U + length;
  }
  return {};
}

// Reads one central record at `at`, and moves `at` behind it.
Result<Entry> read_central(Bytes directory, std::uint64_t& at) {
  if (TRY(load<std::uint32_t>(directory, at)) != kCentralSignature)
    return damaged("a central record is not one");
  const auto flags = TRY(load<std::uint16_t>(directory, at + 8));
  const auto method = TRY(load<std::uint16_t>(directory, at + 10));
  const std::uint64_t name_size = TRY(load<std::uint16_t>(directory, at + 28));
  const std::uint64_t extra_size = TRY(load<std::uint16_t>(directory, at + 30));
  const std::uint64_t comment_size = TRY(load<std::uint16_t>(directory, at + 32));
  Entry entry{.name = {},
              .crc = TRY(load<std::uint32_t>(directory, at + 16)),
              .size = TRY(load<std::uint32_t>(directory, at + 24)),
              .local = TRY(load<std::uint32_t>(directory, at + 42))};
  std::uint64_t packed = TRY(load<std::uint32_t>(directory, at + 20));
  const Bytes name = TRY(slice(directory, at + kCentralSize, name_size));
  entry.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  TRY(apply_zip64(TRY(slice(directory, at + kCentralSize + name_size, extra_size)), entry.size,
                  packed, entry.local));
  if ((flags & 1U) != 0)
    return Error{Code::kUnimplemented, fmt::format("zip member '{}' is encrypted", entry.name)};
  if (method != 0 || packed != entry.size) {
    return Error{Code::kUnimplemented, fmt::format("zip member '{}' is compressed: no file of "
                                                   "torch.save, but perhaps a TorchScript archive",
                                                   entry.name)};
  }
  at += kCentralSize + name_size + extra_size + comment_size;
  return entry;
}

Result<Bytes> member_bytes(Bytes archive, const Entry& entry) {
  if (TRY(load<std::uint32_t>(archive, entry.local)) != kLocalSignature) {
    return damaged(fmt::format("no header at the place of '{}'", entry.name));
  }
  const std::uint64_t skip = std::uint64_t{TRY(load<std::uint16_t>(archive, entry.local + 26))} +
                             TRY(load<std::uint16_t>(archive, entry.local + 28));
  const Bytes bytes = TRY(slice(archive, entry.local + kLocalSize + skip, entry.size));
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  if (crc != entry.crc) {
    return damaged(fmt::format("the checksum of '{}' is {:08x} and should be {:08x}", entry.name,
                               crc, entry.crc));
  }
  return bytes;
}

}  // namespace

Result<Directory> read_zip_directory(Bytes archive, std::size_t max_entries) {
  const Extent extent = TRY(find_directory(archive));
  if (extent.entries > max_entries) {
    return Error{Code::kResourceExhausted, fmt::format("zip archive: {} members, the limit is {}",
                                                       extent.entries, max_entries)};
  }
  const Bytes directory = TRY(slice(archive, extent.offset, extent.size));
  Directory members;
  std::uint64_t total = 0;
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < extent.entries; ++i) {
    const Entry entry = TRY(read_central(directory, at));
    total += entry.size;  // members that overlap would cost their checksum again and again
    if (total > archive.size()) return damaged("its members are larger than the file");
    if (!members.emplace(entry.name, TRY(member_bytes(archive, entry))).second) {
      return damaged(fmt::format("'{}' is there twice", entry.name));
    }
  }
  return members;
}

}  // namespace atelier::vision
