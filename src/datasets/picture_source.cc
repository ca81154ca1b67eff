#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "archives/archive_reader.h"
#include "base/file.h"
#include "base/hash.h"
#include "datasets/internal/manifest.h"
#include "datasets/internal/picture_source.h"

namespace atelier::datasets {
namespace {

namespace fs = std::filesystem;
using archives::ArchiveReader;

constexpr std::size_t kBlock = std::size_t{1} << 18;
constexpr std::size_t kMaxWarnings = 100;
// Folders and hidden files beside each picture.
constexpr std::size_t kMembersPerFile = 4;

bool has_hidden_part(std::string_view path) {
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.starts_with('.') || part == "__MACOSX" || part == "Thumbs.db" || part == "desktop.ini")
      return true;
    path.remove_prefix(std::min(part.size() + 1, path.size()));
  }
  return false;
}

// "./train/a.png" -> "train/a.png"
std::string plain_path(std::string_view path) {
  while (path.starts_with("./")) path.remove_prefix(2);
  return std::string(path);
}

// Calls visit(path, size, reader) for each regular file.
template <typename Visit>
Result<void> for_each_file(const ImageFolderOptions& options, Visit visit) {
  // Of members a listing counts the pictures itself; here the bound is against an endless archive.
  const archives::Limits limits{.max_bytes = options.max_total_bytes,
                                .max_members = kMembersPerFile * options.max_files};
  ArchiveReader reader =
      TRY(ArchiveReader::open(options.source, archives::Formats::kTarOrZip, limits));
  while (const std::optional<archives::Member> member = TRY(reader.next())) {
    if (member->kind != archives::Member::Kind::kFile || member->name.empty()) continue;
    TRY(visit(plain_path(member->name), member->size, reader));
  }
  return {};
}

Result<std::string> read_member(ArchiveReader& reader, const ImageFolderOptions& options) {
  std::string bytes;
  while (true) {
    const std::size_t have = bytes.size();
    bytes.resize(have + kBlock);
    const std::size_t got = TRY(reader.read({bytes.data() + have, kBlock}));
    bytes.resize(have + got);
    if (got == 0) return bytes;
    if (bytes.size() > options.max_file_bytes) {
      return Error{Code::kResourceExhausted,
                   fmt::format("archive '{}': a file of more than {} bytes",
                               options.source.string(), options.max_file_bytes)};
    }
  }
}

// Bounds and order of a listing, for both kinds of sources.
class Lister {
 public:
  explicit Lister(const ImageFolderOptions& options)
      : options_(options), hasher_(Digest::kSha256) {}

  Result<void> add(std::string path, std::uint64_t size, std::int64_t modified) {
    if (has_hidden_part(path)) return {};
    const Result<void> legal = check_relative_path(path);
    if (!legal) {
      if (listing_.warnings.size() < kMaxWarnings)
        listing_.warnings.push_back(legal.error().message + "; left out");
      return {};
    }
    total_ += size;
    if (listing_.files.size() >= options_.max_files || total_ > options_.max_total_bytes) {
      return Error{Code::kResourceExhausted,
                   fmt::format("'{}' has more than {} files or {} bytes", options_.source.string(),
                               options_.max_files, options_.max_total_bytes)};
    }
    stamps_.emplace_back(fmt::format("{}\n{} {}\n", path, size, modified));
    listing_.files.push_back({std::move(path), size});
    return {};
  }

  SourceListing finish() {
    std::ranges::sort(stamps_);
    for (const std::string& stamp : stamps_) hasher_.update(stamp);
    listing_.identity = to_hex(hasher_.finish());
    return std::move(listing_);
  }

 private:
  const ImageFolderOptions& options_;
  Hasher hasher_;
  SourceListing listing_;
  std::vector<std::string> stamps_;
  std::uint64_t total_ = 0;
};

Result<void> list_folder(const fs::path& root, Lister& lister) {
  std::error_code failed;
  fs::recursive_directory_iterator it(root, failed);
  for (const fs::recursive_directory_iterator end; !failed && it != end; it.increment(failed)) {
    std::error_code unknown;
    if (it->symlink_status(unknown).type() != fs::file_type::regular)
      continue;  // links are not followed
    const auto modified = fs::last_write_time(it->path(), unknown).time_since_epoch().count();
    TRY(lister.add(it->path().lexically_relative(root).string(), it->file_size(unknown), modified));
  }
  if (failed)
    return Error{Code::kIo,
                 fmt::format("reading folder '{}': {}", root.string(), failed.message())};
  return {};
}

}  // namespace

Result<SourceListing> list_source(const ImageFolderOptions& options) {
  std::error_code failed;
  Lister lister(options);
  if (fs::is_directory(options.source, failed)) {
    TRY(list_folder(options.source, lister));
    return lister.finish();
  }
  if (!fs::is_regular_file(options.source, failed)) {
    return Error{Code::kNotFound,
                 fmt::format("'{}' is neither a folder nor an archive", options.source.string())};
  }
  const auto modified = fs::last_write_time(options.source, failed).time_since_epoch().count();
  TRY(for_each_file(options, [&](std::string path, std::uint64_t size, ArchiveReader&) {
    return lister.add(std::move(path), size, modified);
  }));
  return lister.finish();
}

Result<void> read_source_files(
    const ImageFolderOptions& options, const std::function<bool(const std::string&)>& wanted,
    const std::function<Result<void>(const std::string&, std::string)>& take) {
  std::error_code failed;
  if (fs::is_directory(options.source, failed)) {
    for (const SourceFile& file : TRY(list_source(options)).files) {
      if (wanted(file.path))
        TRY(take(file.path, TRY(read_file(options.source / file.path, options.max_file_bytes))));
    }
    return {};
  }
  return for_each_file(
      options, [&](const std::string& path, std::uint64_t, ArchiveReader& reader) -> Result<void> {
        if (!wanted(path)) return {};
        return take(path, TRY(read_member(reader, options)));
      });
}

}  // namespace atelier::datasets
