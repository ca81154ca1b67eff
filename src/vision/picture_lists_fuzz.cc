// Bytes as an .lst file and as a manifest, by the first byte.
#include <cstdint>
#include <string_view>

#include "vision/picture_lists.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    ignore_error(vision::parse_lst(text), "any outcome but a crash is right");
  } else {
    const vision::ManifestAttributes attributes{.label = data[0] % 4 == 1 ? "" : "class"};
    ignore_error(vision::parse_manifest(text, attributes), "any outcome but a crash is right");
  }
  return 0;
}
