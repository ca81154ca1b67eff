#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "datasets/internal/deepfashion_lists.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto images = datasets::parse_category_images(text, 50);
  if (images) {
    for (const auto& row : *images) {
      ATELIER_CHECK(row.value >= 1 && row.value <= 50 && !row.path.empty(),
                    "a row that should have been refused");
    }
  }
  ignore_error(datasets::parse_categories(text), "any outcome but a crash is right");
  ignore_error(datasets::parse_partition(text), "any outcome but a crash is right");
  ignore_error(datasets::parse_boxes(text), "any outcome but a crash is right");
  return 0;
}
