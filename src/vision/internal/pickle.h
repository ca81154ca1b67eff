// A pickle read as data. The reader knows the opcodes and globals that PyTorch's state dictionaries
// use and refuses any other by name; nothing is ever called, imported or run. Bounded in nodes,
// stack and memo by the size that the caller allows.
//
// Opcodes and their meaning: CPython, Lib/pickletools.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "vision/weights.h"

namespace atelier::vision {

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kLong,  // beyond 64 bits: raw little-endian bytes in `text`
  kFloat,
  kString,
  kTuple,
  kList,
  kDict,     // items: key, value, key, value, ...
  kGlobal,   // text: "module name"
  kStorage,  // text: key; integer: elements; dtype
  kTensor,   // items: storage, sizes (tuple), strides (tuple); integer: offset in elements
};

using PickleRef = std::uint32_t;

struct PickleNode {
  PickleKind kind = PickleKind::kNone;
  Dtype dtype = Dtype::kF32;
  std::int64_t integer = 0;
  double number = 0;
  std::string text = {};
  std::vector<PickleRef> items = {};
};

// The values of one pickle: nodes refer to one another by number, so sharing and even cycles cost
// nothing.
struct Pickle {
  std::vector<PickleNode> nodes;
  PickleRef root = 0;
  std::size_t size = 0;  // bytes that the pickle took, with its STOP

  [[nodiscard]] const PickleNode& at(PickleRef ref) const { return nodes[ref]; }
};

struct PickleLimits {
  std::size_t max_nodes = 2'000'000;
  std::size_t max_stack = 1'000'000;
};

// Reads the pickle at the front of `bytes`; what follows its STOP is left alone.
Result<Pickle> read_pickle(std::span<const std::byte> bytes, const PickleLimits& limits = {});

}  // namespace atelier::vision
