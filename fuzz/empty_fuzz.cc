// The smallest fuzz target: cmake/newest_clang.cmake asks with it whether a clang comes with
// libFuzzer.
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* /*data*/, std::size_t /*size*/) {
  return 0;
}
