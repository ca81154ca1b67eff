// Files of torch.save, both containers, and bare pickles.
#include <cstdint>
#include <span>

#include "vision/internal/pickle.h"
#include "vision/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const vision::WeightLimits limits{.max_tensors = 1000, .max_header_bytes = std::size_t{1} << 20};
  const auto file = vision::parse_weights(bytes, limits);
  if (file) {
    // Every byte that a tensor claims must be readable.
    unsigned sum = 0;
    for (const vision::NamedTensor& tensor : file->tensors()) {
      for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
    }
    volatile unsigned sink = sum;
    static_cast<void>(sink);
  }
  ignore_error(vision::read_pickle(bytes, {.max_nodes = 10'000, .max_stack = 10'000}),
               "any outcome but a crash is right");
  return 0;
}
