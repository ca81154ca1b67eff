#include "agent/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <thread>

#include "agent/gzip_writer.h"
#include "archives/utf8_locale.h"

namespace atelier::agent {
namespace {

using archives::ArchiveReader;

constexpr std::size_t kMaxEntries = 5'000'000;
constexpr int kMaxDepth = 100;

struct FreeWriter {
  void operator()(archive* handle) const { archive_write_free(handle); }
};
struct FreeEntry {
  void operator()(archive_entry* entry) const { archive_entry_free(entry); }
};
using Writer = std::unique_ptr<archive, FreeWriter>;
using Entry = std::unique_ptr<archive_entry, FreeEntry>;

Result<void> walk(int folder, const std::string& prefix, int depth, std::vector<TreeEntry>& found) {
  if (depth > kMaxDepth) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' is more than {} folders deep", prefix, kMaxDepth)};
  }
  for (const std::string& name : TRY(names_in_folder(folder))) {
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
                            std::uint64_t size, const std::function<Result<void>()>& go_on) {
  const UniqueFd fd = TRY(tree.open_file(name));
  std::string buffer(std::size_t{256} << 10, '\0');
  // The header has promised `size` bytes; nobody writes any more, so fewer is a broken disk.
  for (std::uint64_t done = 0; size > 0;) {
    const Result<void> may = go_on();
    if (!may) {
      return may.error().within(
          fmt::format("'/opt/ml/{}', {} of {} bytes packed", name, done, done + size));
    }
    const ssize_t got = read(fd.get(), buffer.data(), std::min<std::uint64_t>(buffer.size(), size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_from_errno("read '/opt/ml/" + name + "'", errno);
    if (got == 0) return Error{Code::kDataLoss, "'/opt/ml/" + name + "' became shorter"};
    if (archive_write_data(handle, buffer.data(), static_cast<std::size_t>(got)) != got) {
      return archive_error(handle, "pack '/opt/ml/" + name + "'");
    }
    size -= static_cast<std::uint64_t>(got);
    done += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<void> write_entry(archive* handle, const MlTree& tree, const std::string& folder,
                         const TreeEntry& item, const std::function<Result<void>()>& go_on) {
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
  return write_contents(handle, tree, folder + "/" + item.name, item.size, go_on);
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

Result<void> unpack_member(ArchiveReader& reader, const archives::Member& member, MlTree& tree,
                           const std::string& folder) {
  if (member.name.empty()) {
    return Error{Code::kInvalidArgument, "an entry of the archive has no name"};
  }
  const std::string relative = TRY(safe_name(member.name));
  if (relative.empty()) return {};
  const std::string name = folder + "/" + relative;
  switch (member.kind) {
    case archives::Member::Kind::kFolder:
      return tree.make_folder(name);
    case archives::Member::Kind::kFile: {
      const UniqueFd fd = TRY(tree.create_file(name, (member.mode & 0777U) | 0600U));
      return reader.copy_to(fd.get());
    }
    case archives::Member::Kind::kLink:
      return tree.make_link(member.target, name);
    case archives::Member::Kind::kHardLink:
      return Error{Code::kInvalidArgument,
                   fmt::format("entry '{}' of the archive is a hard link", relative)};
    case archives::Member::Kind::kOther:
      break;
  }
  return Error{Code::kInvalidArgument,
               fmt::format("entry '{}' of the archive is a device or a pipe", relative)};
}

Result<void> unpack_members(int fd, MlTree& tree, const std::string& folder,
                            const archives::Limits& limits,
                            const std::function<bool()>& cancelled) {
  ArchiveReader reader =
      TRY(ArchiveReader::open(fd, "source code", archives::Formats::kTar, limits));
  TRY(tree.make_folder(folder));
  while (const std::optional<archives::Member> member = TRY(reader.next())) {
    if (cancelled && cancelled()) return Error{Code::kCancelled, "the unpacking was stopped"};
    TRY(unpack_member(reader, *member, tree, folder));
  }
  return {};
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

Result<MergedTrees> list_trees(const std::vector<const MlTree*>& trees, const std::string& folder) {
  MergedTrees merged;
  std::map<std::string, TreeEntry::Kind> known;
  const auto is_below_a_file = [&](const std::string& name) {
    for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
      const auto above = known.find(name.substr(0, at));
      if (above != known.end() && above->second != TreeEntry::Kind::kFolder) return true;
    }
    return false;
  };
  for (const MlTree* tree : trees) {
    for (TreeEntry& entry : TRY(list_tree(*tree, folder))) {
      if (merged.entries.size() >= kMaxEntries) {
        return Error{Code::kResourceExhausted,
                     fmt::format("more than {} files to upload", kMaxEntries)};
      }
      const auto [there, is_new] = known.emplace(entry.name, entry.kind);
      const bool both_folders =
          entry.kind == TreeEntry::Kind::kFolder && there->second == TreeEntry::Kind::kFolder;
      if (!is_new && both_folders) continue;
      if (!is_new || is_below_a_file(entry.name)) {
        merged.left_out.push_back(entry.name);
      } else {
        merged.entries.push_back({tree, std::move(entry)});
      }
    }
  }
  return merged;
}

Result<std::vector<std::string>> pack_folders(const std::vector<const MlTree*>& trees,
                                              const std::string& folder, int fd,
                                              const std::function<Result<void>()>& go_on) {
  MergedTrees merged = TRY(list_trees(trees, folder));
  const archives::Utf8Locale utf8;
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
  for (const auto& [tree, entry] : merged.entries) {
    const Result<void> written = write_entry(writer.get(), *tree, folder, entry, go_on);
    if (written) continue;
    // Else the archive's end would be written, after zeros for all that is missing of the entry.
    archive_write_fail(writer.get());
    return output.outcome ? written.error() : output.outcome.error();
  }
  if (archive_write_close(writer.get()) != ARCHIVE_OK) {
    if (!output.outcome) return output.outcome.error();
    return archive_error(writer.get(), "finish an archive");
  }
  TRY(gzip.finish());
  return std::move(merged.left_out);
}

Result<void> unpack_archive(int fd, MlTree& tree, const std::string& folder,
                            const archives::Limits& limits,
                            const std::function<bool()>& cancelled) {
  Result<void> unpacked = unpack_members(fd, tree, folder, limits, cancelled);
  if (unpacked) return unpacked;
  // Who gave the archive gave a wrong one, whether it is damaged or too large.
  Error error = std::move(unpacked).error();
  if (error.code == Code::kDataLoss || error.code == Code::kResourceExhausted) {
    error.code = Code::kInvalidArgument;
  }
  return error;
}

}  // namespace atelier::agent
