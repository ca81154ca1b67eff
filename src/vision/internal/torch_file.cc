// The two containers of torch.save: zip (since 1.6) and the older row of pickles and raw storages.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "vision/internal/pickle.h"
#include "vision/internal/weight_contents.h"
#include "vision/internal/zip_directory.h"

namespace atelier::vision {
namespace {

using Bytes = std::span<const std::byte>;
using Contents = WeightFile::Contents;
// The raw bytes of a storage by its key.
using FindStorage = std::function<Result<Bytes>(const PickleNode& storage)>;

Error bad(std::string message) { return Error{Code::kInvalidArgument, std::move(message)}; }

struct Layout {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::uint64_t offset = 0;
  std::uint64_t elements = 1;
  bool contiguous = true;
};

// Checks that every element of the tensor lies in a storage of `available` elements.
Result<Layout> read_layout(const Pickle& pickle, const PickleNode& tensor,
                           std::uint64_t available) {
  Layout layout;
  for (const PickleRef ref : pickle.at(tensor.items[1]).items)
    layout.shape.push_back(pickle.at(ref).integer);
  for (const PickleRef ref : pickle.at(tensor.items[2]).items)
    layout.strides.push_back(pickle.at(ref).integer);
  if (tensor.integer < 0) return bad(fmt::format("its offset is {}", tensor.integer));
  layout.offset = static_cast<std::uint64_t>(tensor.integer);
  std::uint64_t last = layout.offset;
  for (std::size_t i = layout.shape.size(); i-- > 0;) {
    const std::int64_t size = layout.shape[i];
    const std::int64_t stride = layout.strides[i];
    if (size < 0 || stride < 0)
      return bad(fmt::format("dimension {} has size {} and stride {}", i, size, stride));
    if (size > 1 && static_cast<std::uint64_t>(stride) != layout.elements)
      layout.contiguous = false;
    if (__builtin_mul_overflow(layout.elements, static_cast<std::uint64_t>(size),
                               &layout.elements)) {
      return bad("its shape is beyond 64 bits");
    }
    std::uint64_t reach = 0;
    if (size > 1 && (__builtin_mul_overflow(static_cast<std::uint64_t>(size - 1),
                                            static_cast<std::uint64_t>(stride), &reach) ||
                     __builtin_add_overflow(last, reach, &last))) {
      return bad("its strides are beyond 64 bits");
    }
  }
  if (layout.elements == 0) return layout;
  if (last >= available) {
    return bad(fmt::format("it reaches to element {} of a storage of {}", last, available));
  }
  // More elements than the storage holds: an expanded tensor, which would grow without a bound.
  if (layout.elements > available) return bad("its strides repeat elements");
  return layout;
}

// Copies a tensor with strides into row-major order.
std::vector<std::byte> gather(Bytes storage, const Layout& layout, std::size_t item) {
  std::vector<std::byte> out(layout.elements * item);
  std::vector<std::int64_t> index(layout.shape.size(), 0);
  std::uint64_t from = layout.offset;
  for (std::uint64_t i = 0; i < layout.elements; ++i) {
    std::memcpy(out.data() + i * item, storage.data() + from * item, item);
    for (std::size_t d = layout.shape.size(); d-- > 0;) {
      from += static_cast<std::uint64_t>(layout.strides[d]);
      if (++index[d] < layout.shape[d]) break;
      from -= static_cast<std::uint64_t>(layout.shape[d] * layout.strides[d]);
      index[d] = 0;
    }
  }
  return out;
}

Result<NamedTensor> read_tensor(const Pickle& pickle, const PickleNode& tensor,
                                const FindStorage& find_storage, Contents& contents,
                                std::uint64_t& copied) {
  const PickleNode& storage = pickle.at(tensor.items[0]);
  const std::size_t item = dtype_size(storage.dtype);
  const Bytes raw = TRY(find_storage(storage));
  Layout layout = TRY(read_layout(pickle, tensor, raw.size() / item));
  NamedTensor named{
      .name = {}, .dtype = storage.dtype, .shape = std::move(layout.shape), .bytes = {}};
  if (layout.elements == 0) return named;
  if (layout.contiguous) {
    named.bytes = raw.subspan(layout.offset * item, layout.elements * item);
    return named;
  }
  layout.shape = named.shape;
  copied += layout.elements * item;
  if (copied > 2 * contents.file.bytes().size()) {
    return Error{Code::kResourceExhausted,
                 "tensors with strides need more than twice the memory of the file"};
  }
  named.bytes = contents.copies.emplace_back(gather(raw, layout, item));
  return named;
}

// The dictionary that holds the tensors: the root, or what a training framework wrapped around it.
Result<const PickleNode*> unwrap(const Pickle& pickle, Contents& contents) {
  const PickleNode* dict = &pickle.at(pickle.root);
  if (dict->kind != PickleKind::kDict)
    return bad("the file holds no dictionary of tensors at its top");
  constexpr std::array<std::string_view, 4> kWrappers = {"state_dict_ema", "model_ema",
                                                         "state_dict", "model"};
  for (const std::string_view wrapper : kWrappers) {
    for (std::size_t i = 0; i + 1 < dict->items.size(); i += 2) {
      const PickleNode& key = pickle.at(dict->items[i]);
      const PickleNode& value = pickle.at(dict->items[i + 1]);
      if (key.kind != PickleKind::kString || key.text != wrapper || value.kind != PickleKind::kDict)
        continue;
      contents.notes.push_back(fmt::format("taken from its entry '{}'", wrapper));
      return &value;
    }
  }
  return dict;
}

void strip_prefixes(Contents& contents) {
  for (bool again = true; again && !contents.tensors.empty();) {
    again = false;
    for (const std::string_view prefix : {"module.", "_orig_mod."}) {
      const auto has_it = [&](const NamedTensor& tensor) {
        return tensor.name.starts_with(prefix);
      };
      if (!std::ranges::all_of(contents.tensors, has_it)) continue;
      for (NamedTensor& tensor : contents.tensors) tensor.name.erase(0, prefix.size());
      contents.notes.push_back(fmt::format("prefix '{}' taken off", prefix));
      again = true;
    }
  }
}

Result<void> collect(const Pickle& pickle, const FindStorage& find_storage, Contents& contents,
                     const WeightLimits& limits) {
  const PickleNode& dict = *TRY(unwrap(pickle, contents));
  std::uint64_t copied = 0;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleNode& key = pickle.at(dict.items[i]);
    const PickleNode& value = pickle.at(dict.items[i + 1]);
    if (key.kind != PickleKind::kString || value.kind != PickleKind::kTensor) {
      if (contents.notes.size() < 100) {
        contents.notes.push_back(fmt::format("entry '{}' is no tensor",
                                             key.kind == PickleKind::kString ? key.text : "?"));
      }
      continue;
    }
    if (contents.tensors.size() >= limits.max_tensors) {
      return Error{Code::kResourceExhausted,
                   fmt::format("more than {} tensors", limits.max_tensors)};
    }
    Result<NamedTensor> tensor = read_tensor(pickle, value, find_storage, contents, copied);
    if (!tensor) return tensor.error().within(fmt::format("tensor '{}'", key.text));
    tensor->name = key.text;
    contents.tensors.push_back(std::move(*tensor));
  }
  if (contents.tensors.empty()) return bad("the file holds no tensors");
  strip_prefixes(contents);
  return {};
}

Result<Bytes> of_size(Bytes raw, const PickleNode& storage) {
  const auto wanted = static_cast<std::uint64_t>(storage.integer);
  if (raw.size() / dtype_size(storage.dtype) < wanted) {
    return Error{Code::kDataLoss,
                 fmt::format("storage '{}' has {} bytes and should have {} elements of {}",
                             storage.text, raw.size(), wanted, dtype_name(storage.dtype))};
  }
  return raw.first(wanted * dtype_size(storage.dtype));
}

// --- the legacy container ---

constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);

struct Cursor {
  Bytes rest;
  PickleLimits limits;
  Result<Pickle> pickle() {
    Pickle read = TRY(read_pickle(rest, limits));
    rest = rest.subspan(read.size);
    return read;
  }
};

Result<void> check_legacy_head(Cursor& cursor) {
  const Pickle magic = TRY(cursor.pickle());
  if (magic.at(magic.root).text != kMagic)
    return bad("not a file of torch.save: its magic number is another");
  const Pickle protocol = TRY(cursor.pickle());
  if (protocol.at(protocol.root).integer != 1001) {
    return Error{Code::kUnimplemented, fmt::format("protocol {} of torch.save; 1001 is known",
                                                   protocol.at(protocol.root).integer)};
  }
  const Pickle system = TRY(cursor.pickle());
  const PickleNode& info = system.at(system.root);
  for (std::size_t i = 0; i + 1 < info.items.size(); i += 2) {
    if (system.at(info.items[i]).text == "little_endian" &&
        system.at(info.items[i + 1]).integer == 0) {
      return Error{Code::kUnimplemented, "the file is big-endian"};
    }
  }
  return {};
}

// After the pickles: for each key, in the order of the key list, the number of elements and the
// elements.
Result<std::unordered_map<std::string, Bytes>> read_legacy_storages(Bytes rest,
                                                                    const Pickle& object,
                                                                    const Pickle& keys) {
  std::unordered_map<std::string_view, Dtype> dtypes;
  for (const PickleNode& node : object.nodes) {
    if (node.kind != PickleKind::kStorage) continue;
    const auto [found, fresh] = dtypes.emplace(node.text, node.dtype);
    if (!fresh && found->second != node.dtype)
      return bad(fmt::format("storage '{}' has two types", node.text));
  }
  std::unordered_map<std::string, Bytes> storages;
  for (const PickleRef ref : keys.at(keys.root).items) {
    const std::string& key = keys.at(ref).text;
    const auto dtype = dtypes.find(key);
    if (dtype == dtypes.end()) return bad(fmt::format("storage '{}' belongs to no tensor", key));
    if (rest.size() < 8)
      return Error{Code::kDataLoss, fmt::format("cut short before storage '{}'", key)};
    std::uint64_t elements = 0;
    std::memcpy(&elements, rest.data(), 8);
    rest = rest.subspan(8);
    const std::size_t item = dtype_size(dtype->second);
    if (elements > rest.size() / item) {
      return Error{Code::kDataLoss,
                   fmt::format("storage '{}' should have {} elements of {} and {} bytes are left",
                               key, elements, dtype_name(dtype->second), rest.size())};
    }
    if (!storages.emplace(key, rest.first(elements * item)).second) {
      return bad(fmt::format("storage '{}' is there twice", key));
    }
    rest = rest.subspan(elements * item);
  }
  return storages;
}

Bytes cap(Bytes bytes, std::size_t limit) { return bytes.first(std::min(bytes.size(), limit)); }

}  // namespace

Result<void> read_torch_zip(Contents& contents, const WeightLimits& limits) {
  contents.format = WeightFormat::kTorchZip;
  const auto members = TRY(read_zip_directory(contents.file.bytes(), limits.max_tensors + 100));
  std::optional<std::string> root;
  for (const auto& [name, bytes] : members) {
    if (name.ends_with("/constants.pkl")) {
      return Error{Code::kUnimplemented,
                   "this is a TorchScript archive; save the state_dict with torch.save"};
    }
    if (name.ends_with("/data.pkl") && std::ranges::count(name, '/') == 1)
      root = name.substr(0, name.find('/') + 1);
  }
  if (!root) return bad("a zip archive without data.pkl: not a file of torch.save");
  if (const auto order = members.find(*root + "byteorder"); order != members.end()) {
    const std::string_view text(reinterpret_cast<const char*>(order->second.data()),
                                order->second.size());
    if (text != "little")
      return Error{Code::kUnimplemented, fmt::format("its byte order is '{}'", text.substr(0, 20))};
  }
  const Bytes data = members.find(*root + "data.pkl")->second;
  if (data.size() > limits.max_header_bytes) {
    return Error{Code::kResourceExhausted, fmt::format("data.pkl has {} bytes, the limit is {}",
                                                       data.size(), limits.max_header_bytes)};
  }
  const Pickle pickle = TRY(read_pickle(data, {.max_nodes = 20 * limits.max_tensors}));
  const FindStorage find_storage = [&](const PickleNode& storage) -> Result<Bytes> {
    const auto member = members.find(*root + "data/" + storage.text);
    if (member == members.end())
      return Error{Code::kDataLoss, fmt::format("storage '{}' is missing", storage.text)};
    return of_size(member->second, storage);
  };
  return collect(pickle, find_storage, contents, limits);
}

Result<void> read_torch_legacy(Contents& contents, const WeightLimits& limits) {
  contents.format = WeightFormat::kTorchLegacy;
  const Bytes all = contents.file.bytes();
  Cursor cursor{cap(all, limits.max_header_bytes), {.max_nodes = 20 * limits.max_tensors}};
  TRY(check_legacy_head(cursor));
  const Pickle object = TRY(cursor.pickle());
  const Pickle keys = TRY(cursor.pickle());
  const std::size_t used = std::min(all.size(), limits.max_header_bytes) - cursor.rest.size();
  const auto storages = TRY(read_legacy_storages(all.subspan(used), object, keys));
  const FindStorage find_storage = [&](const PickleNode& storage) -> Result<Bytes> {
    const auto found = storages.find(storage.text);
    if (found == storages.end())
      return Error{Code::kDataLoss, fmt::format("storage '{}' is missing", storage.text)};
    return of_size(found->second, storage);
  };
  return collect(object, find_storage, contents, limits);
}

}  // namespace atelier::vision
