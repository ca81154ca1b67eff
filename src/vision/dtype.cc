#include <utility>

#include "vision/weights.h"

namespace atelier::vision {

std::size_t dtype_size(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
    case Dtype::kI64:
      return 8;
    case Dtype::kF32:
    case Dtype::kI32:
      return 4;
    case Dtype::kF16:
    case Dtype::kBF16:
    case Dtype::kI16:
      return 2;
    case Dtype::kI8:
    case Dtype::kU8:
    case Dtype::kBool:
      return 1;
  }
  __builtin_unreachable();
}

std::string_view dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return "F64";
    case Dtype::kF32:
      return "F32";
    case Dtype::kF16:
      return "F16";
    case Dtype::kBF16:
      return "BF16";
    case Dtype::kI64:
      return "I64";
    case Dtype::kI32:
      return "I32";
    case Dtype::kI16:
      return "I16";
    case Dtype::kI8:
      return "I8";
    case Dtype::kU8:
      return "U8";
    case Dtype::kBool:
      return "BOOL";
  }
  __builtin_unreachable();
}

}  // namespace atelier::vision
