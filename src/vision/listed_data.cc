#include "vision/listed_data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/file.h"
#include "vision/record_io.h"

namespace atelier::vision {
namespace {

namespace fs = std::filesystem;

Error at_line(std::uint64_t line, std::string_view what) {
  return Error{Code::kInvalidArgument, fmt::format("line {}: {}", line, what)};
}

// The pictures of a folder by their paths. A link is followed only to a place inside; a folder is
// looked at for that once.
class PictureFiles {
 public:
  explicit PictureFiles(const fs::path& root) : root_(root), real_root_(real(root)) {}

  // The size of a picture, or why there is none.
  Result<std::uint64_t> size_of(const std::string& name) {
    const fs::path path(name);
    if (path.is_absolute()) {
      return refused(fmt::format("path '{}' is absolute; it must lead from the channel's folder",
                                 shown(name)));
    }
    if (std::ranges::any_of(path, [](const fs::path& part) { return part == ".."; })) {
      return refused(fmt::format("path '{}' leads out of the channel", shown(name)));
    }
    const auto size = look(path);
    if (size) return *size;
    return refused(fmt::format("there is no picture '{}' in the channel", shown(name)));
  }

 private:
  static Error refused(std::string what) { return Error{Code::kInvalidArgument, std::move(what)}; }

  static fs::path real(const fs::path& path) {
    std::error_code failed;
    fs::path found = fs::canonical(path, failed);
    return failed ? fs::path() : found;
  }
  [[nodiscard]] bool inside(const fs::path& path) const {
    const fs::path found = real(path);
    return !real_root_.empty() &&
           std::mismatch(real_root_.begin(), real_root_.end(), found.begin(), found.end()).first ==
               real_root_.end();
  }

  std::optional<std::uint64_t> look(const fs::path& path) {
    if (path.empty() || path.native().find('\0') != std::string::npos) return std::nullopt;
    const auto [folder, added] = folders_.try_emplace(path.parent_path().native(), false);
    if (added) folder->second = inside(root_ / path.parent_path());
    struct stat info {};
    const fs::path whole = root_ / path;
    if (!folder->second || ::lstat(whole.c_str(), &info) != 0) return std::nullopt;
    if (S_ISLNK(info.st_mode) && (!inside(whole) || ::stat(whole.c_str(), &info) != 0)) {
      return std::nullopt;
    }
    if (!S_ISREG(info.st_mode)) return std::nullopt;
    return static_cast<std::uint64_t>(info.st_size);
  }

  const fs::path& root_;
  fs::path real_root_;
  std::unordered_map<std::string, bool> folders_;
};

// Rows with places to an ImageFolder: which classes there are, and that every label is one.
class Assembler {
 public:
  Assembler(const ListOptions& options, std::string place_word)
      : options_(options), place_word_(std::move(place_word)) {
    folder_.multi_label = options.multi_label;
  }

  Result<void> add(const ListedPicture& row, Sample sample) {
    Result<std::vector<std::uint32_t>> labels =
        options_.multi_label ? several(row.labels) : single(row.labels);
    if (!labels) {
      return labels.error().within(fmt::format("{} {}", place_word_, row.place));
    }
    sample.label = labels->empty() ? 0 : labels->front();
    if (!labels->empty() && labels->back() > largest_) {
      largest_ = labels->back();
      largest_at_ = row.place;
    }
    if (!labels->empty()) smallest_ = std::min(smallest_, labels->front());
    note_repeated(row, sample);
    if (options_.multi_label) folder_.label_sets.push_back(*std::move(labels));
    folder_.samples.push_back(std::move(sample));
    return {};
  }

  Result<ImageFolder> finish(const fs::path& root,
                             const std::map<std::uint32_t, ClassName>& names) {
    folder_.root = root;
    if (folder_.samples.empty()) {
      return Error{Code::kFailedPrecondition, "there are no pictures in it"};
    }
    const std::size_t count = TRY(class_count());
    TRY(name_classes(count, names));
    folder_.class_counts.assign(count, 0);
    for (std::size_t i = 0; i < folder_.samples.size(); ++i) {
      if (!options_.multi_label) ++folder_.class_counts[folder_.samples[i].label];
      if (!options_.multi_label) continue;
      for (const std::uint32_t label : folder_.label_sets[i]) ++folder_.class_counts[label];
    }
    TRY(check_gaps());
    if (repeated_ > 0) {
      folder_.warnings.push_back(
          fmt::format("{} rows name a picture that is named before, {} of them with another label; "
                      "the first: {}",
                      repeated_, contradicting_, first_repeated_));
    }
    return std::move(folder_);
  }

 private:
  // A picture that is listed twice may be meant so; with two labels it hardly is.
  void note_repeated(const ListedPicture& row, const Sample& sample) {
    if (sample.offset != Sample::kWholeFile) return;
    const auto [entry, added] = seen_.emplace(sample.path, sample.label);
    if (added) return;
    if (repeated_++ == 0) {
      first_repeated_ = fmt::format("'{}' on {} {}", shown(sample.path), place_word_, row.place);
    }
    if (!options_.multi_label && entry->second != sample.label) ++contradicting_;
  }

  Result<std::vector<std::uint32_t>> single(const std::vector<double>& labels) {
    if (labels.size() != 1) {
      return Error{
          Code::kInvalidArgument,
          fmt::format("it has {} labels; without multi_label=1 a picture has one", labels.size())};
    }
    return std::vector<std::uint32_t>{TRY(class_number(labels.front()))};
  }

  static Result<std::uint32_t> class_number(double label) {
    if (label != std::floor(label) || label < 0 || label >= kMaxClasses) {
      return Error{
          Code::kInvalidArgument,
          fmt::format("label {}; it must be an integer from 0 to {}", label, kMaxClasses - 1)};
    }
    return static_cast<std::uint32_t>(label);
  }

  Result<std::vector<std::uint32_t>> several(const std::vector<double>& labels) {
    std::set<std::uint32_t> found;
    if (options_.label_format == LabelFormat::kClassId) {
      for (const double label : labels) found.insert(TRY(class_number(label)));
      return std::vector<std::uint32_t>(found.begin(), found.end());
    }
    if (columns_ && labels.size() != *columns_) {
      return Error{
          Code::kInvalidArgument,
          fmt::format("it has {} labels; the rows before it have {}", labels.size(), *columns_)};
    }
    columns_ = labels.size();
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] != 0 && labels[i] != 1) {
        return Error{Code::kInvalidArgument,
                     fmt::format("label {} of class {}; with several labels a picture each is 0 "
                                 "or 1 (or name classes with label-format=class-id)",
                                 labels[i], i)};
      }
      if (labels[i] == 1) found.insert(static_cast<std::uint32_t>(i));
    }
    return std::vector<std::uint32_t>(found.begin(), found.end());
  }

  Result<std::size_t> class_count() const {
    std::optional<std::size_t> wanted = options_.num_classes;
    if (options_.classes) wanted = options_.classes->size();
    if (std::max(wanted.value_or(0), columns_.value_or(0)) > kMaxClasses) {
      return Error{Code::kInvalidArgument,
                   fmt::format("{} classes; the limit is {}",
                               std::max(wanted.value_or(0), columns_.value_or(0)), kMaxClasses)};
    }
    if (columns_) {
      if (!wanted || *wanted == *columns_) return *columns_;
      return Error{Code::kInvalidArgument,
                   fmt::format("its rows have {} labels each; there are {} classes{}", *columns_,
                               *wanted, options_.classes ? "" : " (num_classes)")};
    }
    if (!wanted) return std::size_t{largest_} + 1;
    if (largest_ < *wanted) return *wanted;
    return Error{Code::kInvalidArgument,
                 fmt::format("{} {}: label {}; with {} classes labels go from 0 to {}{}",
                             place_word_, largest_at_, largest_, *wanted, *wanted - 1,
                             smallest_ == 1 && largest_ == *wanted
                                 ? " (all of them are from 1 on: subtract 1)"
                                 : "")};
  }

  // Names from the metadata of a manifest, else the numbers. What validation calls a class has to
  // be what training calls it.
  Result<void> name_classes(std::size_t count, const std::map<std::uint32_t, ClassName>& names) {
    if (options_.classes) {
      folder_.classes = *options_.classes;
      for (const auto& [number, given] : names) {
        if (number >= count) continue;
        const std::string& trained = folder_.classes[number];
        if (trained == given.name || trained == std::to_string(number)) continue;
        return Error{Code::kInvalidArgument,
                     fmt::format("class {} is called '{}' here and '{}' in the training data",
                                 number, shown(given.name), shown(trained))};
      }
      return {};
    }
    if (!names.empty() && names.rbegin()->first >= count) {
      const auto& [number, given] = *names.rbegin();
      return at_line(
          given.line,
          fmt::format("its metadata calls class {} '{}', but labels go from 0 to {}{}", number,
                      shown(given.name), count - 1,
                      options_.num_classes ? " (num_classes)"
                                           : "; a class without pictures needs num_classes"));
    }
    std::set<std::string> distinct;
    for (const auto& [number, given] : names) distinct.insert(given.name);
    const bool named = distinct.size() == count && names.size() == count;
    for (std::uint32_t i = 0; i < count; ++i) {
      folder_.classes.push_back(named ? names.at(i).name : std::to_string(i));
    }
    return {};
  }

  // A class that nothing shows is a mistake in the labels, unless its number was announced.
  Result<void> check_gaps() {
    constexpr std::size_t kMaxNamed = 20;
    std::size_t empty = 0;
    for (std::size_t i = 0; i < folder_.classes.size(); ++i) {
      if (folder_.class_counts[i] > 0) continue;
      if (!options_.num_classes && !options_.classes && !columns_) {
        return Error{Code::kInvalidArgument,
                     fmt::format("labels go up to {}, but none is {}: they must be consecutive "
                                 "from 0, or give num_classes",
                                 largest_, i)};
      }
      if (++empty > kMaxNamed) continue;
      folder_.warnings.push_back(
          fmt::format("class '{}' has no pictures", shown(folder_.classes[i])));
    }
    if (empty > kMaxNamed) {
      folder_.warnings.push_back(fmt::format("so it is with {} classes more of the {}",
                                             empty - kMaxNamed, folder_.classes.size()));
    }
    return {};
  }

  const ListOptions& options_;
  std::string place_word_;
  ImageFolder folder_;
  std::optional<std::size_t> columns_;
  std::uint32_t smallest_ = ~0U, largest_ = 0;
  std::uint64_t largest_at_ = 0;
  std::unordered_map<std::string, std::uint32_t> seen_;  // first label by path
  std::size_t repeated_ = 0, contradicting_ = 0;
  std::string first_repeated_;
};

// Where the picture of a URI or path lies below the folder.
Result<Sample> find_picture(PictureFiles& files, const std::string& reference) {
  constexpr std::string_view kScheme = "s3://";
  constexpr int kMaxParts = 64;
  if (!reference.starts_with(kScheme)) {
    const std::uint64_t size = TRY(files.size_of(reference));
    return Sample{.path = reference, .bytes = size};
  }
  std::string_view rest = std::string_view(reference).substr(kScheme.size());
  for (int parts = 0; parts < kMaxParts; ++parts) {
    const std::size_t slash = rest.find('/');
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
    const auto size = files.size_of(std::string(rest));
    if (size) return Sample{.path = std::string(rest), .bytes = *size};
    ignore_error(size, "a shorter one may be there");
  }
  return Error{Code::kInvalidArgument,
               fmt::format("the channel has no file for '{}'", shown(reference))};
}

Error in_file(const Error& error, const fs::path& file) {
  return error.within(fmt::format("'{}'", file.filename().string()));
}

}  // namespace

Result<std::vector<fs::path>> files_ending(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> files;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    std::error_code unknown;
    if (!name.starts_with('.') && name.ends_with(ending) && it->is_regular_file(unknown))
      files.push_back(it->path());
  }
  if (failed) {
    return Error{Code::kIo,
                 fmt::format("reading folder '{}': {}", folder.string(), failed.message())};
  }
  std::ranges::sort(files);
  return files;
}

Result<ImageFolder> open_lst(const fs::path& pictures, const fs::path& list,
                             const ListOptions& options) {
  const std::string text = TRY(read_file(list, kMaxListBytes));
  const Result<std::vector<ListedPicture>> rows = parse_lst(text);
  if (!rows) return in_file(rows.error(), list);
  Assembler assembler(options, "line");
  PictureFiles files(pictures);
  for (const ListedPicture& row : *rows) {
    const auto size = files.size_of(row.path);
    if (!size) return in_file(at_line(row.place, size.error().message), list);
    const Result<void> added = assembler.add(row, {.path = row.path, .bytes = *size});
    if (!added) return in_file(added.error(), list);
  }
  Result<ImageFolder> folder = assembler.finish(pictures, {});
  if (!folder) return in_file(folder.error(), list);
  return folder;
}

Result<ImageFolder> open_records(const fs::path& folder, const ListOptions& options) {
  const std::vector<fs::path> files = TRY(files_ending(folder, ".rec"));
  if (files.empty()) {
    return Error{Code::kNotFound, "it holds no .rec file"};
  }
  Assembler assembler(options, "record at byte");
  for (const fs::path& file : files) {
    const UniqueFd fd = TRY(open_file(file, O_RDONLY));
    const Result<std::vector<Record>> records = index_records(
        [&](std::uint64_t offset, std::span<std::byte> buffer) -> Result<std::size_t> {
          ssize_t got = 0;
          do {
            got = ::pread(fd.get(), buffer.data(), buffer.size(), static_cast<off_t>(offset));
          } while (got < 0 && errno == EINTR);
          if (got < 0) return error_from_errno("read", errno);
          return static_cast<std::size_t>(got);
        });
    if (!records) return in_file(records.error(), file);
    for (const Record& record : *records) {
      const ListedPicture row{.path = {},
                              .labels = {record.labels.begin(), record.labels.end()},
                              .place = record.offset};
      const Result<void> added = assembler.add(
          row, {.path = file.filename().string(), .bytes = record.bytes, .offset = record.offset});
      if (!added) return in_file(added.error(), file);
    }
  }
  return assembler.finish(folder, {});
}

Result<ImageFolder> open_manifest(const fs::path& folder, const fs::path& file,
                                  const ListOptions& options) {
  const std::string text = TRY(read_file(file, kMaxListBytes));
  const Result<Manifest> manifest = parse_manifest(text, options.attributes);
  if (!manifest) return in_file(manifest.error(), file);
  Assembler assembler(options, "line");
  PictureFiles files(folder);
  for (const ListedPicture& row : manifest->pictures) {
    Result<Sample> sample = find_picture(files, row.path);
    if (!sample) return in_file(at_line(row.place, sample.error().message), file);
    const Result<void> added = assembler.add(row, *std::move(sample));
    if (!added) return in_file(added.error(), file);
  }
  Result<ImageFolder> opened = assembler.finish(folder, manifest->class_names);
  if (!opened) return in_file(opened.error(), file);
  return opened;
}

}  // namespace atelier::vision
