// The idx format of MNIST and its relatives (http://yann.lecun.com/exdb/mnist): big-endian sizes,
// then bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::datasets {

struct Idx {
  std::vector<std::uint32_t> shape;
  std::string values;  // unsigned bytes, row-major
};

// Takes gzip'd bytes too. The number of values must be that of the shape.
Result<Idx> parse_idx(std::string_view bytes, std::size_t max_values = std::size_t{1} << 30);

}  // namespace atelier::datasets
