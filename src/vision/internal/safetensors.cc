// safetensors: u64 length, a JSON header, then the tensors' bytes.
// https://github.com/huggingface/safetensors#format
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <boost/json/basic_parser_impl.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "base/file.h"
#include "base/id.h"
#include "base/json.h"
#include "vision/internal/weight_contents.h"

namespace atelier::vision {
namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::array kDtypes = {Dtype::kF64, Dtype::kF32, Dtype::kF16, Dtype::kBF16, Dtype::kI64,
                                Dtype::kI32, Dtype::kI16, Dtype::kI8,  Dtype::kU8,   Dtype::kBool};

Error bad(std::string message) {
  return Error{Code::kInvalidArgument, "safetensors: " + std::move(message)};
}

// Counts keys, so that a key that is there twice shows: the parser keeps only one of them.
struct KeyCounter {
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);
  using Code = boost::system::error_code;
  std::size_t keys = 0;
  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) { return true; }
  bool on_object_end(std::size_t, Code&) { return true; }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(std::size_t, Code&) { return true; }
  bool on_key_part(json::string_view, std::size_t, Code&) { return true; }
  bool on_key(json::string_view, std::size_t, Code&) { return ++keys, true; }
  bool on_string_part(json::string_view, std::size_t, Code&) { return true; }
  bool on_string(json::string_view, std::size_t, Code&) { return true; }
  bool on_number_part(json::string_view, Code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, Code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, Code&) { return true; }
  bool on_double(double, json::string_view, Code&) { return true; }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(json::string_view, Code&) { return true; }
  bool on_comment(json::string_view, Code&) { return true; }
};

Result<json::object> parse_header(std::string_view text) {
  if (text.empty() || text.front() != '{') return bad("the header does not begin with '{'");
  json::value header = TRY(parse_json(text, 4));
  if (!header.is_object()) return bad("the header is no object");
  json::basic_parser<KeyCounter> parser(json::parse_options{});
  boost::system::error_code failed;
  parser.write_some(false, text.data(), text.size(), failed);
  if (failed) return bad("the header is no JSON");
  std::size_t kept = header.get_object().size();
  for (const auto& entry : header.get_object()) {
    if (entry.value().is_object()) kept += entry.value().get_object().size();
  }
  if (parser.handler().keys != kept) return bad("a name is there twice in the header");
  return std::move(header).as_object();
}

Result<Dtype> parse_dtype(std::string_view name) {
  const auto* found = std::ranges::find(kDtypes, name, dtype_name);
  if (found == kDtypes.end()) {
    return Error{Code::kUnimplemented,
                 fmt::format("dtype '{}' is not one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL",
                             name.substr(0, 20))};
  }
  return *found;
}

// A count or an offset: JSON integers from 0.
std::optional<std::uint64_t> natural(const json::value& value) {
  if (value.is_int64() && value.get_int64() >= 0)
    return static_cast<std::uint64_t>(value.get_int64());
  if (value.is_uint64()) return value.get_uint64();
  return std::nullopt;
}

std::optional<std::uint64_t> byte_count(const std::vector<std::int64_t>& shape, Dtype dtype) {
  std::uint64_t count = dtype_size(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count))
      return std::nullopt;
  }
  return count;
}

Result<NamedTensor> parse_tensor(std::string_view name, const json::value& entry,
                                 std::span<const std::byte> data) {
  const json::array* shape = find_array(entry, "shape");
  const json::array* offsets = find_array(entry, "data_offsets");
  const std::optional<std::string> dtype = find_string(entry, "dtype");
  if (shape == nullptr || offsets == nullptr || !dtype || offsets->size() != 2 ||
      entry.get_object().size() != 3) {
    return bad(
        fmt::format("'{}' must have dtype, shape and two data_offsets, and nothing else", name));
  }
  NamedTensor tensor;
  tensor.dtype = TRY(parse_dtype(*dtype));
  tensor.name = name;
  if (shape->size() > 16)
    return bad(fmt::format("'{}' has {} dimensions, the limit is 16", name, shape->size()));
  for (const json::value& size : *shape) {
    const std::optional<std::uint64_t> value = natural(size);
    if (!value || *value > std::uint64_t{1} << 62)
      return bad(fmt::format("'{}' has a size that is no count", name));
    tensor.shape.push_back(static_cast<std::int64_t>(*value));
  }
  const std::optional<std::uint64_t> begin = natural((*offsets)[0]);
  const std::optional<std::uint64_t> end = natural((*offsets)[1]);
  if (!begin || !end || *begin > *end || *end > data.size()) {
    return bad(fmt::format("'{}' lies outside of the file", name));
  }
  if (byte_count(tensor.shape, tensor.dtype) != *end - *begin) {
    return bad(fmt::format("'{}' has {} bytes, which its shape and {} do not make", name,
                           *end - *begin, *dtype));
  }
  tensor.bytes = data.subspan(*begin, *end - *begin);
  return tensor;
}

Result<void> read_metadata(const json::value& value, std::map<std::string, std::string>& metadata) {
  if (!value.is_object()) return bad("__metadata__ is no object");
  for (const auto& [key, text] : value.get_object()) {
    if (!text.is_string())
      return bad(fmt::format("__metadata__ '{}' is no string", std::string_view(key)));
    metadata.emplace(key, text.get_string());
  }
  return {};
}

std::string header_text(std::span<const NamedTensor> tensors,
                        const std::map<std::string, std::string>& metadata) {
  json::object header;
  if (!metadata.empty()) {
    json::object& texts = header[kMetadata].emplace_object();
    for (const auto& [key, text] : metadata) texts[key] = text;
  }
  std::uint64_t at = 0;
  for (const NamedTensor& tensor : tensors) {
    json::object& entry = header[tensor.name].emplace_object();
    entry["dtype"] = dtype_name(tensor.dtype);
    json::array& shape = entry["shape"].emplace_array();
    for (const std::int64_t size : tensor.shape) shape.emplace_back(size);
    entry["data_offsets"] = json::array{at, at + tensor.bytes.size()};
    at += tensor.bytes.size();
  }
  std::string text = json::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

Result<void> check_for_writing(std::span<const NamedTensor> tensors) {
  std::unordered_set<std::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second || tensor.name == kMetadata) {
      return bad(fmt::format("'{}' cannot be written twice", tensor.name));
    }
    if (byte_count(tensor.shape, tensor.dtype) != tensor.bytes.size()) {
      return bad(fmt::format("'{}' has {} bytes, which its shape and {} do not make", tensor.name,
                             tensor.bytes.size(), dtype_name(tensor.dtype)));
    }
  }
  return {};
}

}  // namespace

Result<void> read_safetensors(WeightFile::Contents& contents, const WeightLimits& limits) {
  contents.format = WeightFormat::kSafetensors;
  const std::span<const std::byte> file = contents.file.bytes();
  std::uint64_t length = 0;
  if (file.size() < 8) return Error{Code::kDataLoss, "safetensors: cut short"};
  std::memcpy(&length, file.data(), 8);
  if (length > limits.max_header_bytes) {
    return Error{Code::kResourceExhausted,
                 fmt::format("safetensors: a header of {} bytes, the limit is {}", length,
                             limits.max_header_bytes)};
  }
  if (length > file.size() - 8)
    return Error{Code::kDataLoss, "safetensors: cut short within the header"};
  const json::object header =
      TRY(parse_header({reinterpret_cast<const char*>(file.data()) + 8, length}));
  const std::span<const std::byte> data = file.subspan(8 + length);
  if (header.size() > limits.max_tensors + 1) {
    return Error{Code::kResourceExhausted,
                 fmt::format("safetensors: more than {} tensors", limits.max_tensors)};
  }
  for (const auto& [name, entry] : header) {
    if (std::string_view(name) == kMetadata) {
      TRY(read_metadata(entry, contents.metadata));
      continue;
    }
    contents.tensors.push_back(TRY(parse_tensor(name, entry, data)));
  }
  // No byte may belong to two tensors or to none.
  std::ranges::stable_sort(contents.tensors, [](const NamedTensor& a, const NamedTensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  const std::byte* expected = data.data();
  for (const NamedTensor& tensor : contents.tensors) {
    if (tensor.bytes.data() != expected)
      return bad(fmt::format("there is a gap or an overlap before '{}'", tensor.name));
    expected += tensor.bytes.size();
  }
  if (expected != data.data() + data.size())
    return bad("there are bytes behind the last tensor, or some are missing");
  return {};
}

Result<void> write_safetensors(const std::filesystem::path& path,
                               std::span<const NamedTensor> tensors,
                               const std::map<std::string, std::string>& metadata) {
  TRY(check_for_writing(tensors));
  const std::string header = header_text(tensors, metadata);
  const std::uint64_t length = header.size();
  // Streamed instead of write_file_durably, which would need all of it in one string.
  const std::filesystem::path temporary =
      path.parent_path() / ("." + path.filename().string() + "." + random_id(8) + ".tmp");
  const auto write = [&]() -> Result<void> {
    const UniqueFd fd = TRY(open_file(temporary, O_WRONLY | O_CREAT | O_EXCL, 0644));
    TRY(write_all(fd.get(), std::as_bytes(std::span(&length, 1))));
    TRY(write_all(fd.get(), header));
    for (const NamedTensor& tensor : tensors) TRY(write_all(fd.get(), tensor.bytes));
    if (::fsync(fd.get()) != 0)
      return error_from_errno(fmt::format("fsync '{}'", temporary.string()), errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      return error_from_errno(fmt::format("rename to '{}'", path.string()), errno);
    }
    return sync_folder(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
  };
  Result<void> written = write();
  if (!written) ::unlink(temporary.c_str());
  return written;
}

}  // namespace atelier::vision
