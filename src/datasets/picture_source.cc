#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <locale.h>

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/hash.h"
#include "datasets/internal/manifest.h"
#include "datasets/internal/picture_source.h"

namespace atelier::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = std::size_t{1} << 18;
constexpr std::size_t kMaxWarnings = 100;

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

// libarchive converts names by the locale, and in "C" it drops those that are not ASCII.
class Utf8Locale {
 public:
  Utf8Locale()
      : mine_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)),
        before_(mine_ != nullptr ? ::uselocale(mine_) : nullptr) {}
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;
  ~Utf8Locale() {
    if (mine_ == nullptr) return;
    ::uselocale(before_);
    ::freelocale(mine_);
  }

 private:
  locale_t mine_;
  locale_t before_;
};

struct CloseArchive {
  void operator()(archive* opened) const { archive_read_free(opened); }
};
using Archive = std::unique_ptr<archive, CloseArchive>;

Error archive_error(const fs::path& path, archive* opened) {
  const char* text = archive_error_string(opened);
  return Error{Code::kDataLoss,
               fmt::format("archive '{}': {}", path.string(), text != nullptr ? text : "damaged")};
}

Result<Archive> open_archive(const fs::path& path) {
  Archive opened(archive_read_new());
  archive_read_support_format_tar(opened.get());
  archive_read_support_format_zip(opened.get());
  archive_read_support_filter_gzip(opened.get());
  archive_read_support_filter_bzip2(opened.get());
  archive_read_support_filter_xz(opened.get());
  archive_read_support_filter_zstd(opened.get());
  if (archive_read_open_filename(opened.get(), path.c_str(), kBlock) != ARCHIVE_OK)
    return archive_error(path, opened.get());
  return opened;
}

// Calls visit(path, size, entry reader) for each regular file. Nothing is ever written by
// libarchive itself.
template <typename Visit>
Result<void> for_each_entry(const fs::path& path, Visit visit) {
  const Utf8Locale locale;
  const Archive opened = TRY(open_archive(path));
  archive_entry* entry = nullptr;
  while (true) {
    const int status = archive_read_next_header(opened.get(), &entry);
    if (status == ARCHIVE_EOF) return {};
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN) return archive_error(path, opened.get());
    const char* name = archive_entry_pathname_utf8(entry);
    if (name == nullptr) name = archive_entry_pathname(entry);
    if (name == nullptr || archive_entry_filetype(entry) != AE_IFREG ||
        archive_entry_hardlink(entry) != nullptr)
      continue;
    const auto size =
        static_cast<std::uint64_t>(std::max<la_int64_t>(archive_entry_size(entry), 0));
    TRY(visit(plain_path(name), size, opened.get()));
  }
}

Result<std::string> read_entry(const fs::path& path, archive* opened, std::uint64_t max_bytes) {
  std::string bytes;
  while (true) {
    const std::size_t have = bytes.size();
    bytes.resize(have + kBlock);
    const la_ssize_t got = archive_read_data(opened, bytes.data() + have, kBlock);
    if (got < 0) return archive_error(path, opened);
    bytes.resize(have + static_cast<std::size_t>(got));
    if (got == 0) return bytes;
    if (bytes.size() > max_bytes) {
      return Error{
          Code::kResourceExhausted,
          fmt::format("archive '{}': a file of more than {} bytes", path.string(), max_bytes)};
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
  TRY(for_each_entry(options.source, [&](std::string path, std::uint64_t size, archive*) {
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
  std::uint64_t total = 0;
  return for_each_entry(
      options.source, [&](const std::string& path, std::uint64_t, archive* opened) -> Result<void> {
        if (!wanted(path)) return {};
        std::string bytes = TRY(read_entry(options.source, opened, options.max_file_bytes));
        total += bytes.size();
        if (total > options.max_total_bytes) {
          return Error{Code::kResourceExhausted,
                       fmt::format("'{}' unpacks to more than {} bytes", options.source.string(),
                                   options.max_total_bytes)};
        }
        return take(path, std::move(bytes));
      });
}

}  // namespace atelier::datasets
