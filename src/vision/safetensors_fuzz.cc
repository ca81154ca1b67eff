// safetensors: what is accepted must be written and read back as the same tensors.
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/result.h"
#include "vision/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;
  if (size > 1 << 16) return 0;
  // The length is filled in, so that the fuzzer's changes reach the header instead of dying at the
  // first check.
  if (size < 1) return 0;
  const std::size_t split = 1 + data[0] * std::size_t{4} % size;
  const std::uint64_t length = split - 1;
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  bytes.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto file = vision::parse_weights(std::as_bytes(std::span(bytes)));
  if (!file) return 0;
  std::size_t total = 0;
  for (const vision::NamedTensor& tensor : file->tensors()) total += tensor.bytes.size();
  ATELIER_CHECK(8 + length + total == bytes.size(), "the tensors do not fill the file");
  return 0;
}
