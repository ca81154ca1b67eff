#include "archives/archive_reader.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "archives/utf8_locale.h"
#include "base/file.h"

namespace atelier::archives {
namespace {

constexpr std::size_t kBlock = std::size_t{64} << 10;

struct FreeArchive {
  void operator()(archive* handle) const { archive_read_free(handle); }
};
using Handle = std::unique_ptr<archive, FreeArchive>;

Handle make_handle(Formats formats) {
  Handle handle{archive_read_new()};
  archive_read_support_format_tar(handle.get());
  archive_read_support_filter_gzip(handle.get());
  if (formats == Formats::kTarGz) return handle;
  archive_read_support_filter_bzip2(handle.get());
  archive_read_support_filter_xz(handle.get());
  if (formats == Formats::kTar) {
    archive_read_support_format_empty(handle.get());
  } else {
    archive_read_support_filter_zstd(handle.get());
    archive_read_support_format_zip(handle.get());
  }
  return handle;
}

Member::Kind kind_of(archive_entry* entry) {
  if (archive_entry_hardlink(entry) != nullptr) return Member::Kind::kHardLink;
  switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
      return Member::Kind::kFile;
    case AE_IFDIR:
      return Member::Kind::kFolder;
    case AE_IFLNK:
      return Member::Kind::kLink;
    default:
      return Member::Kind::kOther;
  }
}

Member member_of(archive_entry* entry) {
  Member member;
  member.kind = kind_of(entry);
  // The first form does not depend on the locale, but is missing where the stored bytes are no
  // UTF-8.
  const char* name = archive_entry_pathname_utf8(entry);
  if (name == nullptr) name = archive_entry_pathname(entry);
  if (name != nullptr) member.name = name;
  if (member.kind == Member::Kind::kLink) {
    const char* target = archive_entry_symlink_utf8(entry);
    if (target == nullptr) target = archive_entry_symlink(entry);
    if (target != nullptr) member.target = target;
  }
  member.size = static_cast<std::uint64_t>(std::max<la_int64_t>(archive_entry_size(entry), 0));
  member.mode = archive_entry_perm(entry);
  return member;
}

}  // namespace

struct ArchiveReader::State {
  Handle handle;
  std::string name;
  Limits limits;
  std::uint64_t bytes = 0;
  std::size_t members = 0;

  [[nodiscard]] Error damaged() const {
    const char* words = archive_error_string(handle.get());
    return Error{Code::kDataLoss,
                 fmt::format("archive '{}': {}", name, words == nullptr ? "damaged" : words)};
  }
};

ArchiveReader::ArchiveReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
ArchiveReader::ArchiveReader(ArchiveReader&&) noexcept = default;
ArchiveReader::~ArchiveReader() = default;

Result<ArchiveReader> ArchiveReader::open(const std::filesystem::path& path, Formats formats,
                                          const Limits& limits) {
  auto state = std::make_unique<State>(State{make_handle(formats), path.string(), limits});
  if (archive_read_open_filename(state->handle.get(), path.c_str(), kBlock) != ARCHIVE_OK) {
    return state->damaged();
  }
  return ArchiveReader{std::move(state)};
}

Result<ArchiveReader> ArchiveReader::open(int fd, std::string name, Formats formats,
                                          const Limits& limits) {
  auto state = std::make_unique<State>(State{make_handle(formats), std::move(name), limits});
  if (archive_read_open_fd(state->handle.get(), fd, kBlock) != ARCHIVE_OK) return state->damaged();
  return ArchiveReader{std::move(state)};
}

Result<std::optional<Member>> ArchiveReader::next() {
  const Utf8Locale utf8;
  archive_entry* entry = nullptr;
  const int status = archive_read_next_header(state_->handle.get(), &entry);
  if (status == ARCHIVE_EOF) return std::optional<Member>{};
  if (status < ARCHIVE_WARN) return state_->damaged();
  if (++state_->members > state_->limits.max_members) {
    return Error{Code::kResourceExhausted, fmt::format("archive '{}': more than {} members",
                                                       state_->name, state_->limits.max_members)};
  }
  return std::optional<Member>{member_of(entry)};
}

Result<std::size_t> ArchiveReader::read(std::span<char> buffer) {
  const la_ssize_t got = archive_read_data(state_->handle.get(), buffer.data(), buffer.size());
  if (got < 0) return state_->damaged();
  const auto size = static_cast<std::size_t>(got);
  state_->bytes += size;
  if (state_->bytes > state_->limits.max_bytes) {
    return Error{Code::kResourceExhausted,
                 fmt::format("archive '{}': unpacks to more than {} bytes", state_->name,
                             state_->limits.max_bytes)};
  }
  return size;
}

Result<void> ArchiveReader::copy_to(int fd) {
  std::vector<char> block(kBlock);
  while (const std::size_t got = TRY(read(block))) {
    TRY(write_all(fd, std::string_view{block.data(), got}));
  }
  return {};
}

}  // namespace atelier::archives
