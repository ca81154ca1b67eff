#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "datasets/internal/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;
  const auto idx = datasets::parse_idx({reinterpret_cast<const char*>(data), size}, 1 << 20);
  if (!idx) return 0;
  std::size_t count = 1;
  for (const std::uint32_t side : idx->shape) count *= side;
  ATELIER_CHECK(count == idx->values.size(), "the values are not those of the shape");
  return 0;
}
