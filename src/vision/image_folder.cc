#include "vision/image_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <system_error>
#include <unordered_map>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "vision/record_io.h"

namespace atelier::vision {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxWarnings = 100;
constexpr int kMaxDepth = 16;

bool is_hidden(std::string_view name) {
  return name.starts_with('.') || name == "__MACOSX" || name == "Thumbs.db" ||
         name == "desktop.ini";
}

bool is_picture(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string extension(name.substr(dot));
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  constexpr std::array<std::string_view, 8> kPictures = {".jpg", ".jpeg", ".png", ".webp",
                                                         ".bmp", ".gif",  ".tif", ".tiff"};
  return std::ranges::find(kPictures, extension) != kPictures.end();
}

bool is_within(const fs::path& path, const fs::path& root) {
  return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
}

class Indexer {
 public:
  Indexer(const IndexOptions& options, ImageFolder& folder) : options_(options), folder_(folder) {}

  Result<void> run() {
    std::error_code failed;
    real_root_ = fs::canonical(folder_.root, failed);
    if (failed) {
      return Error{Code::kNotFound,
                   fmt::format("data set '{}': {}", folder_.root.string(), failed.message())};
    }
    const std::vector<std::string> found = TRY(class_folders());
    TRY(choose_classes(found));
    std::unordered_map<std::string_view, std::uint32_t> number;
    for (std::uint32_t i = 0; i < folder_.classes.size(); ++i)
      number.emplace(folder_.classes[i], i);
    for (const std::string& name : found) {
      const auto known = number.find(name);
      if (known == number.end()) return unknown_class(name);
      TRY(walk(folder_.root / name, name, known->second, 0));
    }
    std::ranges::sort(folder_.samples, [](const Sample& a, const Sample& b) {
      return std::tie(a.label, a.path) < std::tie(b.label, b.path);
    });
    return count();
  }

 private:
  void warn(std::string text) {
    if (folder_.warnings.size() < kMaxWarnings) folder_.warnings.push_back(std::move(text));
  }

  // Whether the entry, if it is a link, leads out of the data set.
  bool leads_out(const fs::directory_entry& entry) {
    std::error_code failed;
    if (!entry.is_symlink(failed)) return false;
    const fs::path target = fs::canonical(entry.path(), failed);
    if (!failed && is_within(target, real_root_)) return false;
    warn(fmt::format("'{}' is a link out of the data set; not followed", entry.path().string()));
    return true;
  }

  Result<std::vector<std::string>> class_folders() {
    std::vector<std::string> names;
    std::error_code failed;
    for (fs::directory_iterator it(folder_.root, failed), end; !failed && it != end;
         it.increment(failed)) {
      std::string name = it->path().filename().string();
      std::error_code unknown;
      if (is_hidden(name) || leads_out(*it)) continue;
      if (it->is_directory(unknown)) {
        names.push_back(std::move(name));
      } else if (is_picture(name)) {
        warn(fmt::format("'{}' lies in no class folder; left out", name));
      }
    }
    if (failed) return read_error(folder_.root, failed);
    std::ranges::sort(names);
    if (names.empty()) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("data set '{}' has no class folders; it must hold one folder a "
                               "class, with pictures in each",
                               folder_.root.string())};
    }
    return names;
  }

  Result<void> choose_classes(const std::vector<std::string>& found) {
    folder_.classes = options_.classes.value_or(found);
    folder_.class_counts.assign(folder_.classes.size(), 0);
    return {};
  }

  Error unknown_class(const std::string& name) const {
    return Error{
        Code::kFailedPrecondition,
        fmt::format(
            "data set '{}' has a class '{}' that the {} classes of the model lack ('{}' to '{}')",
            folder_.root.string(), name, folder_.classes.size(), folder_.classes.front(),
            folder_.classes.back())};
  }

  static Error read_error(const fs::path& path, const std::error_code& failed) {
    return Error{Code::kIo,
                 fmt::format("reading folder '{}': {}", path.string(), failed.message())};
  }

  Result<void> walk(const fs::path& folder, const std::string& relative, std::uint32_t label,
                    int depth) {
    if (depth > kMaxDepth) {
      warn(fmt::format("'{}' is nested deeper than {} folders; left out", relative, kMaxDepth));
      return {};
    }
    std::error_code failed;
    for (fs::directory_iterator it(folder, failed), end; !failed && it != end;
         it.increment(failed)) {
      TRY(visit(*it, relative, label, depth));
    }
    if (failed) return read_error(folder, failed);
    return {};
  }

  Result<void> visit(const fs::directory_entry& entry, const std::string& relative,
                     std::uint32_t label, int depth) {
    const std::string name = entry.path().filename().string();
    if (is_hidden(name) || leads_out(entry)) return {};
    std::error_code failed;
    const std::string path = relative + "/" + name;
    if (entry.is_directory(failed)) {
      if (entry.is_symlink(failed)) {
        warn(fmt::format("'{}' is a link to a folder; not followed, it could lead in a circle",
                         path));
        return {};
      }
      return walk(entry.path(), path, label, depth + 1);
    }
    if (!is_picture(name)) {
      warn(fmt::format("'{}' is no picture; left out", path));
      return {};
    }
    const std::uintmax_t size = entry.file_size(failed);
    if (failed)
      return Error{Code::kIo, fmt::format("'{}': {}", entry.path().string(), failed.message())};
    if (folder_.samples.size() >= options_.max_samples) {
      return Error{Code::kResourceExhausted,
                   fmt::format("data set '{}' has more than {} pictures", folder_.root.string(),
                               options_.max_samples)};
    }
    folder_.samples.push_back({path, label, size});
    return {};
  }

  Result<void> count() {
    for (const Sample& sample : folder_.samples) ++folder_.class_counts[sample.label];
    if (folder_.samples.empty()) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("data set '{}' has {} class folders and no picture (.jpg .jpeg .png "
                               ".webp .bmp .gif .tif)",
                               folder_.root.string(), folder_.classes.size())};
    }
    for (std::size_t i = 0; i < folder_.classes.size(); ++i) {
      if (folder_.class_counts[i] == 0)
        warn(fmt::format("class '{}' has no pictures", folder_.classes[i]));
    }
    return {};
  }

  const IndexOptions& options_;
  ImageFolder& folder_;
  fs::path real_root_;
};

void add_field(Hasher& hasher, std::string_view text) {
  const std::uint64_t size = text.size();
  hasher.update(std::as_bytes(std::span(&size, 1)));
  hasher.update(text);
}

std::span<const std::uint32_t> labels_of(const ImageFolder& folder, const Sample& sample) {
  if (!folder.multi_label) return {&sample.label, 1};
  return folder.label_sets[static_cast<std::size_t>(&sample - folder.samples.data())];
}

// Reads `size` bytes from `offset` on.
Result<std::span<std::byte>> read_at(const fs::path& path, std::uint64_t offset, std::uint64_t size,
                                     std::vector<std::byte>& buffer) {
  const UniqueFd fd = TRY(open_file(path, O_RDONLY));
  if (buffer.size() < size) buffer.resize(size);
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got =
        ::pread(fd.get(), buffer.data() + have, size - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_from_errno(fmt::format("read '{}'", path.string()), errno);
    if (got == 0) return Error{Code::kDataLoss, "the file became shorter while it was read"};
    have += static_cast<std::size_t>(got);
  }
  return std::span(buffer).first(size);
}

Result<std::uint64_t> size_of(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return error_from_errno(fmt::format("stat '{}'", path.string()), errno);
  return static_cast<std::uint64_t>(info.st_size);
}

}  // namespace

Result<std::span<const std::byte>> read_picture(const ImageFolder& folder, const Sample& sample,
                                                std::uint64_t max_bytes,
                                                std::vector<std::byte>& buffer) {
  const fs::path path = folder.root / sample.path;
  const bool record = sample.offset != Sample::kWholeFile;
  const std::uint64_t size = record ? sample.bytes : TRY(size_of(path));
  if (size > max_bytes) {
    return Error{Code::kResourceExhausted,
                 fmt::format("a file of {} bytes, the limit is {}", size, max_bytes)};
  }
  const std::span<std::byte> bytes = TRY(read_at(path, record ? sample.offset : 0, size, buffer));
  if (record) return picture_of_record(bytes);
  return std::span<const std::byte>(bytes);
}

Result<ImageFolder> index_image_folder(const fs::path& root, const IndexOptions& options) {
  ImageFolder folder;
  folder.root = root;
  if (options.classes && options.classes->empty()) {
    return Error{Code::kInvalidArgument, "the list of the model's classes is empty"};
  }
  TRY(Indexer(options, folder).run());
  return folder;
}

Result<std::string> fingerprint(const ImageFolder& folder, bool contents) {
  Hasher hasher(Digest::kSha256);
  for (const std::string& name : folder.classes) add_field(hasher, name);
  std::vector<std::byte> buffer;
  for (const Sample& sample : folder.samples) {
    add_field(hasher, sample.path);
    add_field(hasher, fmt::format("{}@{}", sample.bytes, sample.offset));
    add_field(hasher, fmt::format("{}", fmt::join(labels_of(folder, sample), ",")));
    if (!contents) continue;
    const auto bytes = TRY(read_picture(folder, sample, std::uint64_t{1} << 30, buffer));
    add_field(hasher, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return to_hex(hasher.finish());
}

std::vector<std::uint32_t> shuffled_order(std::size_t count, std::uint64_t seed,
                                          std::uint64_t epoch) {
  std::vector<std::uint32_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = static_cast<std::uint32_t>(i);
  // Fisher and Yates; the product's upper half is below i without a division (Lemire, 2019; the
  // bias is below 2^-32).
  for (std::size_t i = count; i > 1; --i) {
    const auto draw = static_cast<unsigned __int128>(rng(mix64(seed), epoch, i)) * i;
    std::swap(order[i - 1], order[static_cast<std::size_t>(draw >> 64)]);
  }
  return order;
}

PixelBuffer::PixelBuffer(std::size_t floats) : size_(floats) {
  data_.reset(static_cast<float*>(::operator new[](floats * sizeof(float), std::align_val_t{64})));
}
void PixelBuffer::Free::operator()(float* pointer) const {
  ::operator delete[](pointer, std::align_val_t{64});
}

}  // namespace atelier::vision
