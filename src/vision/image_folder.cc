#include "vision/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <system_error>
#include <unordered_map>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"

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

}  // namespace

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
  for (const Sample& sample : folder.samples) {
    add_field(hasher, sample.path);
    add_field(hasher, std::to_string(sample.bytes));
    if (!contents) continue;
    add_field(hasher, digest(Digest::kSha256, TRY(read_file(folder.root / sample.path))));
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
