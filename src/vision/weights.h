// Weight files as named tensors, without libtorch: what torch.save writes (the zip container and
// the older one of five pickles) and safetensors, told apart by their first bytes.
//
//   WeightFile file = TRY(read_weights("efficientnet-lite0.pth"));
//   const NamedTensor* stem = file.find("_conv_stem.weight");   // stem->bytes points into a
//   mapping
//
// A pickle is a program. The reader here knows the few opcodes and the few globals that a
// state_dict needs, builds plain values from them, and refuses everything else by name: no file can
// run anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::vision {

enum class Dtype { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

std::size_t dtype_size(Dtype dtype);
// As safetensors spells it: "F32", "BF16", "I64", "BOOL", ...
std::string_view dtype_name(Dtype dtype);

// Elements in row-major order, little-endian. The bytes live as long as the WeightFile that they
// came from, and need not be aligned.
struct NamedTensor {
  std::string name = {};
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape = {};
  std::span<const std::byte> bytes = {};
};

struct WeightLimits {
  std::uint64_t max_file_bytes = std::uint64_t{8} << 30;
  std::size_t max_tensors = 100'000;
  std::size_t max_header_bytes = std::size_t{64} << 20;  // pickles, or the header of safetensors
};

enum class WeightFormat { kTorchZip, kTorchLegacy, kSafetensors };

// The tensors of one file, in the file's order. Owns the mapping that they point into. Movable.
class WeightFile {
 public:
  WeightFile(WeightFile&&) noexcept;
  WeightFile& operator=(WeightFile&&) noexcept;
  ~WeightFile();

  [[nodiscard]] WeightFormat format() const;
  [[nodiscard]] const std::vector<NamedTensor>& tensors() const;
  // Null when there is none of that name.
  [[nodiscard]] const NamedTensor* find(std::string_view name) const;
  // "__metadata__" of safetensors; empty for the others.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const;
  // What is in the file besides the tensors that were taken: entries that are not tensors
  // ("epoch"), and the wrappers that were opened ("state_dict", "module.").
  [[nodiscard]] const std::vector<std::string>& notes() const;

  struct Contents;
  explicit WeightFile(std::unique_ptr<Contents> contents);

 private:
  std::unique_ptr<Contents> contents_;
};

// Reads the file at `path`. Wrappers of training frameworks are opened ("state_dict_ema",
// "model_ema", "state_dict", "model"; prefixes "module." and "_orig_mod."). Tensors that are not
// contiguous are copied into order.
Result<WeightFile> read_weights(const std::filesystem::path& path, const WeightLimits& limits = {});

// The same for bytes in memory, which are copied.
Result<WeightFile> parse_weights(std::span<const std::byte> bytes, const WeightLimits& limits = {});

// Writes `tensors` in the given order, durably. Names must be distinct, bytes must fit the shape.
Result<void> write_safetensors(const std::filesystem::path& path,
                               std::span<const NamedTensor> tensors,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace atelier::vision
