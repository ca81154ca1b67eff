#include "vision/internal/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace atelier::vision {
namespace {

struct StorageClass {
  std::string_view name;
  Dtype dtype;
};
constexpr std::array kStorageClasses = {
    StorageClass{"torch DoubleStorage", Dtype::kF64},
    StorageClass{"torch FloatStorage", Dtype::kF32},
    StorageClass{"torch HalfStorage", Dtype::kF16},
    StorageClass{"torch BFloat16Storage", Dtype::kBF16},
    StorageClass{"torch LongStorage", Dtype::kI64},
    StorageClass{"torch IntStorage", Dtype::kI32},
    StorageClass{"torch ShortStorage", Dtype::kI16},
    StorageClass{"torch CharStorage", Dtype::kI8},
    StorageClass{"torch ByteStorage", Dtype::kU8},
    StorageClass{"torch BoolStorage", Dtype::kBool},
};
constexpr std::string_view kOrderedDict = "collections OrderedDict";
constexpr std::string_view kRebuildTensor = "torch._utils _rebuild_tensor_v2";
constexpr std::string_view kRebuildParameter = "torch._utils _rebuild_parameter";
constexpr std::size_t kMaxNameBytes = 4096;
constexpr std::size_t kMaxRank = 16;

std::optional<Dtype> storage_dtype(std::string_view global) {
  const auto* found = std::ranges::find(kStorageClasses, global, &StorageClass::name);
  if (found == kStorageClasses.end()) return std::nullopt;
  return found->dtype;
}

bool is_known_global(std::string_view global) {
  return global == kOrderedDict || global == kRebuildTensor || global == kRebuildParameter ||
         storage_dtype(global).has_value();
}

// Text of a hostile file, fit for an error message.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 100)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out;
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const PickleLimits& limits)
      : bytes_(bytes), limits_(limits) {
    // The constants are shared: opcodes of one byte make no nodes.
    none_ = append({.kind = PickleKind::kNone});
    false_ = append({.kind = PickleKind::kBool});
    true_ = append({.kind = PickleKind::kBool, .integer = 1});
    empty_ = append({.kind = PickleKind::kTuple});
  }

  Result<Pickle> run() {
    while (true) {
      const auto opcode = static_cast<unsigned char>(*TRY(take(1)).data());
      if (opcode == '.') break;
      if (Result<void> done = step(opcode); !done) {
        return done.error().within(fmt::format("pickle, byte {}", at_ - 1));
      }
      if (stack_.size() + marks_.size() > limits_.max_stack ||
          pickle_.nodes.size() > limits_.max_nodes) {
        return Error{Code::kResourceExhausted,
                     fmt::format("pickle: more than {} values or {} on the stack",
                                 limits_.max_nodes, limits_.max_stack)};
      }
    }
    pickle_.root = TRY(pop());
    pickle_.size = at_;
    return std::move(pickle_);
  }

 private:
  static Error bad(std::string message) {
    return Error{Code::kInvalidArgument, std::move(message)};
  }

  Result<std::string_view> take(std::size_t count) {
    if (bytes_.size() - at_ < count) return Error{Code::kDataLoss, "pickle: cut short"};
    const std::string_view view(reinterpret_cast<const char*>(bytes_.data()) + at_, count);
    at_ += count;
    return view;
  }

  template <typename Integer>
  Result<Integer> take_integer() {
    const std::string_view raw = TRY(take(sizeof(Integer)));
    Integer value;
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }

  // A line of GLOBAL, without its newline.
  Result<std::string_view> take_line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_,
                                std::min(bytes_.size() - at_, kMaxNameBytes));
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return bad("a name without an end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  PickleRef append(PickleNode node) {
    pickle_.nodes.push_back(std::move(node));
    return static_cast<PickleRef>(pickle_.nodes.size() - 1);
  }
  void push(PickleRef ref) { stack_.push_back(ref); }
  void push_new(PickleNode node) { push(append(std::move(node))); }

  // The stack may not be read below the last mark.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Result<PickleRef> pop() {
    if (stack_.size() <= floor()) return bad("an opcode needs a value and there is none");
    const PickleRef ref = stack_.back();
    stack_.pop_back();
    return ref;
  }
  Result<PickleRef> top() const {
    if (stack_.size() <= floor()) return bad("an opcode needs a value and there is none");
    return stack_.back();
  }
  Result<std::vector<PickleRef>> pop_to_mark() {
    if (marks_.empty()) return bad("an opcode needs a mark and there is none");
    std::vector<PickleRef> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                 stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  Result<void> step(unsigned char opcode) {
    switch (opcode) {
      case 0x80: {  // PROTO
        const auto version = TRY(take_integer<std::uint8_t>());
        if (version > 3) return bad(fmt::format("protocol {}; PyTorch writes 2", version));
        return {};
      }
      case 'N':
        push(none_);
        return {};
      case 0x88:
        push(true_);
        return {};
      case 0x89:
        push(false_);
        return {};
      case ')':
        push(empty_);
        return {};
      case '}':
        push_new({.kind = PickleKind::kDict});
        return {};
      case ']':
        push_new({.kind = PickleKind::kList});
        return {};
      case '(':
        marks_.push_back(stack_.size());
        return {};
      case 't':
        return make_tuple(TRY(pop_to_mark()));
      case 0x85:
        return make_tuple(1);
      case 0x86:
        return make_tuple(2);
      case 0x87:
        return make_tuple(3);
      case 'c':
        return read_global();
      case 'R':
        return reduce();
      case 'Q':
        return persistent_id();
      case 'b':
        return build();
      case 'a':
        return extend(PickleKind::kList, {TRY(pop())});
      case 'e':
        return extend(PickleKind::kList, TRY(pop_to_mark()));
      case 's': {
        const PickleRef value = TRY(pop());
        return extend(PickleKind::kDict, {TRY(pop()), value});
      }
      case 'u':
        return extend(PickleKind::kDict, TRY(pop_to_mark()));
      case 'q':
        return memo_put(TRY(take_integer<std::uint8_t>()));
      case 'r':
        return memo_put(TRY(take_integer<std::uint32_t>()));
      case 'h':
        return memo_get(TRY(take_integer<std::uint8_t>()));
      case 'j':
        return memo_get(TRY(take_integer<std::uint32_t>()));
      default:
        return scalar(opcode);
    }
  }

  Result<void> scalar(unsigned char opcode) {
    switch (opcode) {
      case 'K':
        push_int(TRY(take_integer<std::uint8_t>()));
        return {};
      case 'M':
        push_int(TRY(take_integer<std::uint16_t>()));
        return {};
      case 'J':
        push_int(TRY(take_integer<std::int32_t>()));
        return {};
      case 0x8a:
        return read_long(TRY(take_integer<std::uint8_t>()));
      case 'G': {  // BINFLOAT: big-endian
        const auto raw = __builtin_bswap64(TRY(take_integer<std::uint64_t>()));
        PickleNode node{.kind = PickleKind::kFloat};
        node.number = std::bit_cast<double>(raw);
        push_new(std::move(node));
        return {};
      }
      case 'X':    // BINUNICODE
      case 'T': {  // BINSTRING, of files that Python 2 wrote
        const auto size = TRY(take_integer<std::uint32_t>());
        push_new({.kind = PickleKind::kString, .text = std::string(TRY(take(size)))});
        return {};
      }
      case 'U': {  // SHORT_BINSTRING
        const auto size = TRY(take_integer<std::uint8_t>());
        push_new({.kind = PickleKind::kString, .text = std::string(TRY(take(size)))});
        return {};
      }
      default:
        return bad(fmt::format("opcode 0x{:02x} is not one that a file of weights needs; refused",
                               opcode));
    }
  }

  void push_int(std::int64_t value) { push_new({.kind = PickleKind::kInt, .integer = value}); }

  Result<void> read_long(std::size_t size) {
    const std::string_view raw = TRY(take(size));
    if (size > 8) {
      push_new({.kind = PickleKind::kLong, .text = std::string(raw)});
      return {};
    }
    std::uint64_t value =
        size > 0 && (static_cast<unsigned char>(raw.back()) & 0x80U) != 0 ? ~std::uint64_t{0} : 0;
    std::memcpy(&value, raw.data(), size);  // little-endian; the upper bytes keep the sign
    push_int(static_cast<std::int64_t>(value));
    return {};
  }

  Result<void> make_tuple(std::vector<PickleRef> items) {
    push_new({.kind = PickleKind::kTuple, .items = std::move(items)});
    return {};
  }
  Result<void> make_tuple(std::size_t count) {
    std::vector<PickleRef> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = TRY(pop());
    return make_tuple(std::move(items));
  }

  Result<void> read_global() {
    const std::string_view module = TRY(take_line());
    const std::string_view name = TRY(take_line());
    std::string global = fmt::format("{} {}", module, name);
    if (!is_known_global(global)) {
      return Error{
          Code::kPermissionDenied,
          fmt::format("it asks for '{}.{}', which weights do not need; refused, nothing was run",
                      printable(module), printable(name))};
    }
    push_new({.kind = PickleKind::kGlobal, .text = std::move(global)});
    return {};
  }

  Result<void> extend(PickleKind kind, const std::vector<PickleRef>& items) {
    PickleNode& target = pickle_.nodes[TRY(top())];
    if (target.kind != kind) return bad("items for something that is no list or dictionary");
    if (kind == PickleKind::kDict && items.size() % 2 != 0) return bad("a key without a value");
    TRY(count_stored(items.size()));
    target.items.insert(target.items.end(), items.begin(), items.end());
    return {};
  }

  // References in containers are bounded too: a list may be copied again and again for a few bytes
  // each.
  Result<void> count_stored(std::size_t items) {
    stored_ += items;
    if (stored_ > 4 * limits_.max_nodes) return Error{Code::kResourceExhausted, "too many items"};
    return {};
  }

  Result<void> memo_put(std::uint32_t index) {
    memo_[index] = TRY(top());
    return {};
  }
  Result<void> memo_get(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) return bad(fmt::format("memo {} is empty", index));
    push(found->second);
    return {};
  }

  Result<void> reduce() {
    const PickleRef arguments = TRY(pop());
    const PickleRef callable = TRY(pop());
    if (pickle_.at(callable).kind != PickleKind::kGlobal ||
        pickle_.at(arguments).kind != PickleKind::kTuple) {
      return bad("REDUCE of something that is no known function");
    }
    const std::string_view name = pickle_.at(callable).text;
    const std::vector<PickleRef>& items = pickle_.at(arguments).items;
    if (name == kOrderedDict) return make_ordered_dict(std::vector<PickleRef>(items));
    if (name == kRebuildTensor) return make_tensor(std::vector<PickleRef>(items));
    if (name == kRebuildParameter) {
      if (items.empty() || pickle_.at(items[0]).kind != PickleKind::kTensor)
        return bad("a parameter without a tensor");
      push(items[0]);
      return {};
    }
    return bad(fmt::format("'{}' is a class of storages and cannot be called", name));
  }

  Result<void> make_ordered_dict(const std::vector<PickleRef>& arguments) {
    PickleNode node{.kind = PickleKind::kDict};
    if (arguments.size() > 1) return bad("OrderedDict with more than one argument");
    if (arguments.size() == 1) {
      TRY(count_stored(2 * pickle_.at(arguments[0]).items.size()));
      // [[key, value], ...], as Python 2 wrote it
      for (const PickleRef pair : pickle_.at(arguments[0]).items) {
        const std::vector<PickleRef>& items = pickle_.at(pair).items;
        if (items.size() != 2) return bad("OrderedDict of something that is no pair");
        node.items.insert(node.items.end(), items.begin(), items.end());
      }
    }
    push_new(std::move(node));
    return {};
  }

  Result<void> make_tensor(const std::vector<PickleRef>& arguments) {
    // storage, offset, sizes, strides, requires_grad, hooks[, metadata]
    if (arguments.size() < 6 || arguments.size() > 7)
      return bad("_rebuild_tensor_v2 with a wrong number of arguments");
    const PickleNode& sizes = pickle_.at(arguments[2]);
    const PickleNode& strides = pickle_.at(arguments[3]);
    const auto is_int = [&](PickleRef ref) { return pickle_.at(ref).kind == PickleKind::kInt; };
    if (pickle_.at(arguments[0]).kind != PickleKind::kStorage || !is_int(arguments[1]) ||
        sizes.kind != PickleKind::kTuple || strides.kind != PickleKind::kTuple ||
        sizes.items.size() != strides.items.size() || sizes.items.size() > kMaxRank ||
        !std::ranges::all_of(sizes.items, is_int) || !std::ranges::all_of(strides.items, is_int)) {
      return bad("_rebuild_tensor_v2 with arguments of a wrong kind");
    }
    push_new({.kind = PickleKind::kTensor,
              .integer = pickle_.at(arguments[1]).integer,
              .items = {arguments[0], arguments[2], arguments[3]}});
    return {};
  }

  Result<void> persistent_id() {
    // ('storage', class, key, location, elements[, view])
    const std::vector<PickleRef> items = pickle_.at(TRY(pop())).items;
    if (items.size() < 5 || items.size() > 6) return bad("a persistent id that is no storage");
    const PickleNode& kind = pickle_.at(items[0]);
    const PickleNode& type = pickle_.at(items[1]);
    const PickleNode& key = pickle_.at(items[2]);
    const PickleNode& elements = pickle_.at(items[4]);
    if (kind.text != "storage" || type.kind != PickleKind::kGlobal ||
        key.kind != PickleKind::kString || elements.kind != PickleKind::kInt ||
        elements.integer < 0) {
      return bad("a persistent id that is no storage");
    }
    if (items.size() == 6 && pickle_.at(items[5]).kind != PickleKind::kNone) {
      return Error{Code::kUnimplemented,
                   "a view of a storage, as PyTorch before 0.4 wrote; save the file again"};
    }
    const std::optional<Dtype> dtype = storage_dtype(type.text);
    if (!dtype) return bad(fmt::format("'{}' is no class of storages", type.text));
    push_new({.kind = PickleKind::kStorage,
              .dtype = *dtype,
              .integer = elements.integer,
              .text = key.text});
    return {};
  }

  // State of an object: only OrderedDict has one here ("_metadata"), and it says nothing about the
  // tensors.
  Result<void> build() {
    TRY(pop());
    if (pickle_.at(TRY(top())).kind != PickleKind::kDict)
      return bad("BUILD of something that is no dictionary");
    return {};
  }

  std::span<const std::byte> bytes_;
  PickleLimits limits_;
  std::size_t at_ = 0;
  std::size_t stored_ = 0;
  Pickle pickle_;
  std::vector<PickleRef> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, PickleRef> memo_;
  PickleRef none_ = 0;
  PickleRef true_ = 0;
  PickleRef false_ = 0;
  PickleRef empty_ = 0;
};

}  // namespace

Result<Pickle> read_pickle(std::span<const std::byte> bytes, const PickleLimits& limits) {
  return Reader(bytes, limits).run();
}

}  // namespace atelier::vision
