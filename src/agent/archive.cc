#include "agent/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>

#include "agent/gzip_writer.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kMaxEntries = 5'000'000;
constexpr int kMaxDepth = 100;

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};
struct FreeWriter {
  void operator()(archive* handle) const { archive_write_free(handle); }
};
struct FreeReader {
  void operator()(archive* handle) const { archive_read_free(handle); }
};
struct FreeEntry {
  void operator()(archive_entry* entry) const { archive_entry_free(entry); }
};
using Writer = std::unique_ptr<archive, FreeWriter>;
using Reader = std::unique_ptr<archive, FreeReader>;
using Entry = std::unique_ptr<archive_entry, FreeEntry>;

Result<std::vector<std::string>> names_in(int folder) {
  const std::unique_ptr<DIR, CloseDir> entries{fdopendir(dup(folder))};
  if (!entries) return error_from_errno("read a folder of /opt/ml", errno);
  rewinddir(entries.get());
  std::vector<std::string> names;
  while (const dirent* entry = readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<void> walk(int folder, const std::string& prefix, int depth, std::vector<TreeEntry>& found) {
  if (depth > kMaxDepth) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' is more than {} folders deep", prefix, kMaxDepth)};
  }
  for (const std::string& name : TRY(names_in(folder))) {
    struct stat info {};
    if (fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return error_from_errno("stat '" + prefix + name + "'", errno);
    }
    if (found.size() >= kMaxEntries) {
      return Error{Code::kResourceExhausted,
                   fmt::format("more than {} files to upload", kMaxEntries)};
    }
    TreeEntry entry{TreeEntry::Kind::kFile, prefix + name,      {}, 0,
                    info.st_mode & 07777U,  info.st_mtim.tv_sec};
    if (S_ISREG(info.st_mode)) {
      entry.size = static_cast<std::uint64_t>(info.st_size);
      found.push_back(std::move(entry));
    } else if (S_ISLNK(info.st_mode)) {
      char target[PATH_MAX];
      const ssize_t length = readlinkat(folder, name.c_str(), target, sizeof target);
      if (length < 0) return error_from_errno("read link '" + prefix + name + "'", errno);
      entry.kind = TreeEntry::Kind::kLink;
      entry.target.assign(target, static_cast<std::size_t>(length));
      found.push_back(std::move(entry));
    } else if (S_ISDIR(info.st_mode)) {
      const UniqueFd inner{
          openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
      if (!inner) return error_from_errno("open '" + prefix + name + "'", errno);
      entry.kind = TreeEntry::Kind::kFolder;
      found.push_back(std::move(entry));
      TRY(walk(inner.get(), prefix + name + "/", depth + 1, found));
    }
  }
  return {};
}

// libarchive takes names to be in the locale's encoding, and a program starts in "C", where what is
// not ASCII has none. This thread speaks UTF-8 for as long as the object lives.
class Utf8Locale {
 public:
  Utf8Locale() : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (locale_ != nullptr) before_ = uselocale(locale_);
  }
  ~Utf8Locale() {
    if (locale_ == nullptr) return;
    uselocale(before_);
    freelocale(locale_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t locale_ = nullptr;
  locale_t before_ = nullptr;
};

Error archive_error(archive* handle, std::string_view what) {
  const char* words = archive_error_string(handle);
  return Error{Code::kInvalidArgument, fmt::format("{}: {}", what, words == nullptr ? "" : words)};
}

// The gzip stream behind a libarchive writer, and the error that a callback cannot hand through.
struct Output {
  GzipWriter* gzip;
  Result<void> outcome;
};

la_ssize_t write_output(archive* handle, void* context, const void* bytes, std::size_t length) {
  auto* output = static_cast<Output*>(context);
  output->outcome = output->gzip->write({static_cast<const char*>(bytes), length});
  if (output->outcome) return static_cast<la_ssize_t>(length);
  archive_set_error(handle, EIO, "%s", output->outcome.error().message.c_str());
  return -1;
}

Result<void> write_contents(archive* handle, const MlTree& tree, const std::string& name,
                            std::uint64_t size) {
  const UniqueFd fd = TRY(tree.open_file(name));
  std::string buffer(std::size_t{256} << 10, '\0');
  // The header has promised `size` bytes; nobody writes any more, so fewer is a broken disk.
  while (size > 0) {
    const ssize_t got = read(fd.get(), buffer.data(), std::min<std::uint64_t>(buffer.size(), size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_from_errno("read '/opt/ml/" + name + "'", errno);
    if (got == 0) return Error{Code::kDataLoss, "'/opt/ml/" + name + "' became shorter"};
    if (archive_write_data(handle, buffer.data(), static_cast<std::size_t>(got)) != got) {
      return archive_error(handle, "pack '/opt/ml/" + name + "'");
    }
    size -= static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<void> write_entry(archive* handle, const MlTree& tree, const std::string& folder,
                         const TreeEntry& item) {
  const Entry entry{archive_entry_new()};
  archive_entry_set_pathname(entry.get(), item.name.c_str());
  archive_entry_set_perm(entry.get(), item.mode & 0777U);
  archive_entry_set_mtime(entry.get(), item.modified, 0);
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(item.size));
  switch (item.kind) {
    case TreeEntry::Kind::kFolder:
      archive_entry_set_filetype(entry.get(), AE_IFDIR);
      break;
    case TreeEntry::Kind::kLink:
      archive_entry_set_filetype(entry.get(), AE_IFLNK);
      archive_entry_set_symlink(entry.get(), item.target.c_str());
      break;
    case TreeEntry::Kind::kFile:
      archive_entry_set_filetype(entry.get(), AE_IFREG);
      break;
  }
  if (archive_write_header(handle, entry.get()) < ARCHIVE_WARN) {
    return archive_error(handle, "pack '" + item.name + "'");
  }
  if (item.kind != TreeEntry::Kind::kFile) return {};
  return write_contents(handle, tree, folder + "/" + item.name, item.size);
}

// A name in an archive without "./" in front and '/' behind; empty for the root itself.
Result<std::string> safe_name(std::string_view name) {
  const std::string whole{name};
  const auto refuse = [&](std::string_view why) {
    return Error{Code::kInvalidArgument, fmt::format("entry '{}' of the archive {}", whole, why)};
  };
  if (!name.empty() && name.front() == '/') return refuse("has an absolute path");
  std::string clean;
  for (std::size_t start = 0; start < name.size();) {
    const std::size_t end = std::min(name.find('/', start), name.size());
    const std::string_view part = name.substr(start, end - start);
    start = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") return refuse("leaves its folder by '..'");
    if (part.size() > NAME_MAX) return refuse("has a name that is too long");
    clean += (clean.empty() ? "" : "/") + std::string{part};
  }
  if (clean.size() >= PATH_MAX / 2) return refuse("has a path that is too long");
  return clean;
}

Result<void> unpack_file(archive* handle, MlTree& tree, const std::string& name, mode_t mode,
                         std::uint64_t& bytes_left) {
  const UniqueFd fd = TRY(tree.create_file(name, (mode & 0777U) | 0600U));
  while (true) {
    const void* block = nullptr;
    std::size_t length = 0;
    la_int64_t offset = 0;
    const int status = archive_read_data_block(handle, &block, &length, &offset);
    if (status == ARCHIVE_EOF) return {};
    if (status < ARCHIVE_WARN) return archive_error(handle, "unpack '" + name + "'");
    const auto end = static_cast<std::uint64_t>(offset) + length;
    if (offset < 0 || end > bytes_left) {
      return Error{Code::kInvalidArgument, "the archive holds more bytes than are allowed"};
    }
    std::string_view left{static_cast<const char*>(block), length};
    if (lseek(fd.get(), offset, SEEK_SET) < 0) return error_from_errno("lseek", errno);
    TRY(write_all(fd.get(), left));
    if (status == ARCHIVE_OK && length == 0) continue;
    // Counted by what was stored: a sparse file's holes cost nothing.
    bytes_left -= std::min<std::uint64_t>(bytes_left, length);
  }
}

Result<void> unpack_entry(archive* handle, archive_entry* entry, MlTree& tree,
                          const std::string& folder, std::uint64_t& bytes_left) {
  // The form that does not depend on the locale, where the archive has it.
  const char* raw = archive_entry_pathname_utf8(entry);
  if (raw == nullptr) raw = archive_entry_pathname(entry);
  if (raw == nullptr) return Error{Code::kInvalidArgument, "an entry of the archive has no name"};
  const std::string relative = TRY(safe_name(raw));
  if (relative.empty()) return {};
  const std::string name = folder + "/" + relative;
  if (archive_entry_hardlink(entry) != nullptr) {
    return Error{Code::kInvalidArgument,
                 fmt::format("entry '{}' of the archive is a hard link", relative)};
  }
  switch (archive_entry_filetype(entry)) {
    case AE_IFDIR:
      return tree.make_folder(name);
    case AE_IFREG:
      return unpack_file(handle, tree, name, archive_entry_perm(entry), bytes_left);
    case AE_IFLNK: {
      const char* target = archive_entry_symlink(entry);
      return tree.make_link(target == nullptr ? "" : target, name);
    }
    default:
      return Error{Code::kInvalidArgument,
                   fmt::format("entry '{}' of the archive is a device or a pipe", relative)};
  }
}

}  // namespace

Result<std::vector<TreeEntry>> list_tree(const MlTree& tree, const std::string& folder) {
  std::vector<TreeEntry> found;
  const Result<UniqueFd> opened = tree.open_folder(folder);
  if (!opened && opened.error().code == Code::kNotFound) return found;  // the program removed it
  if (!opened) return opened.error();
  const UniqueFd& root = *opened;
  TRY(walk(root.get(), "", 0, found));
  return found;
}

Result<void> pack_folder(const MlTree& tree, const std::string& folder, int fd) {
  const std::vector<TreeEntry> entries = TRY(list_tree(tree, folder));
  const Utf8Locale utf8;
  GzipWriter gzip{fd, std::thread::hardware_concurrency()};
  Output output{&gzip, {}};
  const Writer writer{archive_write_new()};
  archive_write_set_format_pax_restricted(writer.get());
  archive_write_add_filter_none(writer.get());
  archive_write_set_bytes_per_block(writer.get(), 1 << 16);
  archive_write_set_bytes_in_last_block(writer.get(), 10240);
  if (archive_write_open(writer.get(), &output, nullptr, write_output, nullptr) != ARCHIVE_OK) {
    return archive_error(writer.get(), "start an archive");
  }
  for (const TreeEntry& entry : entries) {
    Result<void> written = write_entry(writer.get(), tree, folder, entry);
    if (!written) return output.outcome ? written : output.outcome;
  }
  if (archive_write_close(writer.get()) != ARCHIVE_OK) {
    if (!output.outcome) return output.outcome;
    return archive_error(writer.get(), "finish an archive");
  }
  return gzip.finish();
}

Result<void> unpack_archive(int fd, MlTree& tree, const std::string& folder,
                            const UnpackLimits& limits) {
  const Utf8Locale utf8;
  const Reader reader{archive_read_new()};
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_filter_bzip2(reader.get());
  archive_read_support_filter_xz(reader.get());
  archive_read_support_format_tar(reader.get());
  archive_read_support_format_empty(reader.get());
  if (archive_read_open_fd(reader.get(), fd, std::size_t{64} << 10) != ARCHIVE_OK) {
    return archive_error(reader.get(), "not a tar archive");
  }
  std::uint64_t bytes_left = limits.max_bytes;
  TRY(tree.make_folder(folder));
  for (std::size_t count = 0;; ++count) {
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) return {};
    if (status < ARCHIVE_WARN) return archive_error(reader.get(), "the archive is damaged");
    if (count >= limits.max_entries) {
      return Error{Code::kInvalidArgument,
                   fmt::format("the archive has more than {} entries", limits.max_entries)};
    }
    TRY(unpack_entry(reader.get(), entry, tree, folder, bytes_left));
  }
}

}  // namespace atelier::agent
