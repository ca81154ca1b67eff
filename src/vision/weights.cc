#include "vision/weights.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>

#include "base/file.h"
#include "vision/internal/weight_contents.h"

namespace atelier::vision {
namespace {

bool starts_with(std::span<const std::byte> bytes, std::string_view prefix) {
  return bytes.size() >= prefix.size() &&
         std::memcmp(bytes.data(), prefix.data(), prefix.size()) == 0;
}

Result<void> read_contents(WeightFile::Contents& contents, const WeightLimits& limits) {
  const std::span<const std::byte> bytes = contents.file.bytes();
  if (starts_with(bytes, "PK\x03\x04")) return read_torch_zip(contents, limits);
  // PROTO 2, then the magic number as LONG1.
  if (starts_with(bytes, "\x80\x02\x8a\x0a")) return read_torch_legacy(contents, limits);
  if (bytes.size() > 8 && static_cast<char>(bytes[8]) == '{')
    return read_safetensors(contents, limits);
  if (starts_with(bytes, "version https://git-lfs")) {
    return Error{Code::kInvalidArgument,
                 "this is a pointer of Git LFS, not the weights; fetch them with 'git lfs pull'"};
  }
  return Error{Code::kInvalidArgument, "neither a file of torch.save nor safetensors"};
}

Result<WeightFile> finish(std::unique_ptr<WeightFile::Contents> contents,
                          const WeightLimits& limits) {
  TRY(read_contents(*contents, limits));
  for (std::size_t i = 0; i < contents->tensors.size(); ++i) {
    if (!contents->by_name.emplace(contents->tensors[i].name, i).second) {
      return Error{Code::kInvalidArgument,
                   fmt::format("tensor '{}' is there twice", contents->tensors[i].name)};
    }
  }
  return WeightFile(std::move(contents));
}

}  // namespace

Result<FileBytes> FileBytes::map(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const UniqueFd fd = TRY(open_file(path, O_RDONLY));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0)
    return error_from_errno(fmt::format("stat '{}'", path.string()), errno);
  if (!S_ISREG(info.st_mode)) {
    return Error{Code::kInvalidArgument, fmt::format("'{}' is not a regular file", path.string())};
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > max_bytes) {
    return Error{Code::kResourceExhausted,
                 fmt::format("'{}' has {} bytes, the limit is {}", path.string(), size, max_bytes)};
  }
  FileBytes file;
  if (size == 0) return file;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED)
    return error_from_errno(fmt::format("mmap '{}'", path.string()), errno);
  file.bytes_ = {static_cast<const std::byte*>(address), size};
  file.mapped_ = true;
  return file;
}

FileBytes FileBytes::copy(std::span<const std::byte> bytes) {
  FileBytes file;
  file.owned_.assign(bytes.begin(), bytes.end());
  file.bytes_ = file.owned_;
  return file;
}

FileBytes::FileBytes(FileBytes&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      mapped_(std::exchange(other.mapped_, false)),
      owned_(std::move(other.owned_)) {}

FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(owned_, other.owned_);
  return *this;
}

FileBytes::~FileBytes() {
  if (mapped_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

WeightFile::WeightFile(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
WeightFile::WeightFile(WeightFile&&) noexcept = default;
WeightFile& WeightFile::operator=(WeightFile&&) noexcept = default;
WeightFile::~WeightFile() = default;

WeightFormat WeightFile::format() const { return contents_->format; }
const std::vector<NamedTensor>& WeightFile::tensors() const { return contents_->tensors; }
const std::map<std::string, std::string>& WeightFile::metadata() const {
  return contents_->metadata;
}
const std::vector<std::string>& WeightFile::notes() const { return contents_->notes; }

const NamedTensor* WeightFile::find(std::string_view name) const {
  const auto found = contents_->by_name.find(name);
  return found == contents_->by_name.end() ? nullptr : &contents_->tensors[found->second];
}

Result<WeightFile> read_weights(const std::filesystem::path& path, const WeightLimits& limits) {
  auto contents = std::make_unique<WeightFile::Contents>();
  contents->file = TRY(FileBytes::map(path, limits.max_file_bytes));
  Result<WeightFile> file = finish(std::move(contents), limits);
  if (!file) return file.error().within(fmt::format("weights '{}'", path.string()));
  return file;
}

Result<WeightFile> parse_weights(std::span<const std::byte> bytes, const WeightLimits& limits) {
  if (bytes.size() > limits.max_file_bytes) {
    return Error{Code::kResourceExhausted, fmt::format("weights of {} bytes, the limit is {}",
                                                       bytes.size(), limits.max_file_bytes)};
  }
  auto contents = std::make_unique<WeightFile::Contents>();
  contents->file = FileBytes::copy(bytes);
  return finish(std::move(contents), limits);
}

}  // namespace atelier::vision
