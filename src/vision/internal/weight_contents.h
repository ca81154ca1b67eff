// What a WeightFile holds, and the readers of its three formats.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "vision/weights.h"

namespace atelier::vision {

// A file mapped read-only, or bytes of our own.
class FileBytes {
 public:
  static Result<FileBytes> map(const std::filesystem::path& path, std::uint64_t max_bytes);
  static FileBytes copy(std::span<const std::byte> bytes);
  FileBytes() = default;
  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  bool mapped_ = false;
  std::vector<std::byte> owned_;
};

struct WeightFile::Contents {
  WeightFormat format = WeightFormat::kSafetensors;
  FileBytes file;
  std::deque<std::vector<std::byte>>
      copies;  // tensors that were not contiguous; a deque does not move them
  std::vector<NamedTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> by_name;
  std::map<std::string, std::string> metadata;
  std::vector<std::string> notes;
};

// Each fills format, tensors, metadata and notes from contents.file.
Result<void> read_safetensors(WeightFile::Contents& contents, const WeightLimits& limits);
Result<void> read_torch_zip(WeightFile::Contents& contents, const WeightLimits& limits);
Result<void> read_torch_legacy(WeightFile::Contents& contents, const WeightLimits& limits);

}  // namespace atelier::vision
