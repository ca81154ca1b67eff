// Manifests of any bytes: what is read can be planned, and nothing breaks.
#include <cstddef>
#include <cstdint>

#include "channels/channel_plan.h"
#include "channels/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  if (const auto manifest = channels::parse_manifest(text)) {
    channels::ChannelPlanner planner{manifest->prefix.bucket, 20, true};
    for (const std::string& name : manifest->names) {
      ignore_error(planner.add({.key = name, .size = 1, .etag = "e"}, name), "any input");
    }
    ignore_error(std::move(planner).finish(), "any input");
  }
  ignore_error(channels::parse_augmented_manifest(text, {"a-ref", "b"}), "any input");
  return 0;
}
