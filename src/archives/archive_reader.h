// An archive, member by member. Nothing is written by libarchive, and a name is handed on as it is
// stored: who puts it on a disk checks it first.
//
//   ArchiveReader reader = TRY(ArchiveReader::open(path, Formats::kTarGz, {}));
//   while (const std::optional<Member> member = TRY(reader.next())) {
//     if (member->kind == Member::Kind::kFile) TRY(reader.copy_to(fd));
//   }
//
// A damaged archive is kDataLoss, one beyond its limits kResourceExhausted. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atelier::archives {

enum class Formats {
  kTarGz,     // what Atelier itself writes
  kTar,       // a tar as it is, or by gzip, bzip2 or xz; an empty file is an empty archive
  kTarOrZip,  // a tar as it is, or by gzip, bzip2, xz or zstd; a zip
};

struct Limits {
  std::uint64_t max_bytes = std::uint64_t{8} << 30;  // of all that is read, not of what is skipped
  std::size_t max_members = 200'000;
};

struct Member {
  enum class Kind { kFile, kFolder, kLink, kHardLink, kOther };
  Kind kind = Kind::kOther;
  std::string name;        // empty when it has none that can be told
  std::string target;      // of a link
  std::uint64_t size = 0;  // as promised; read() says what is there
  mode_t mode = 0;
};

class ArchiveReader {
 public:
  static Result<ArchiveReader> open(const std::filesystem::path& path, Formats formats,
                                    const Limits& limits);
  // `fd` stays the caller's, and `name` stands for it in messages.
  static Result<ArchiveReader> open(int fd, std::string name, Formats formats,
                                    const Limits& limits);
  ArchiveReader(ArchiveReader&&) noexcept;
  ArchiveReader& operator=(ArchiveReader&&) = delete;
  ~ArchiveReader();

  // The next member, or nothing at the end. What was not read of the last one is skipped.
  Result<std::optional<Member>> next();
  // Bytes of the member, 0 at its end. Holes of a sparse file are zeros.
  Result<std::size_t> read(std::span<char> buffer);
  // The rest of the member to `fd`.
  Result<void> copy_to(int fd);

 private:
  struct State;
  explicit ArchiveReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atelier::archives
