// The two manifests of SageMaker that name a channel's objects one by one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "objects/object_store.h"

namespace atelier::channels {

constexpr std::size_t kMaxManifestBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxManifestEntries = 2'000'000;

// S3DataType ManifestFile: [{"prefix": "s3://bucket/some/prefix/"}, "a/1.jpg", "a/2.jpg"].
struct Manifest {
  objects::Location prefix;        // the key as it is: the names are appended to it
  std::vector<std::string> names;  // in order, each once
};
// kInvalidArgument says which entry (from 1, the prefix being the first) is wrong and why.
Result<Manifest> parse_manifest(std::string_view text);

// S3DataType AugmentedManifestFile: JSON lines, whose attributes with names ending in "-ref" are
// S3 URIs.
struct AugmentedLine {
  std::string text;                           // the line itself, without its end
  std::vector<objects::Location> references;  // of `attributes`, in their order
};
// Every line needs every attribute of `attributes` (AttributeNames). kInvalidArgument says which
// line is wrong and why.
Result<std::vector<AugmentedLine>> parse_augmented_manifest(
    std::string_view text, const std::vector<std::string>& attributes);

}  // namespace atelier::channels
