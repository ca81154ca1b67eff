// The two texts that name pictures and their labels, a row a line:
//   .lst        index TAB class TAB path            (SageMaker's application/x-image; several
//                                                    columns of 0 and 1 with several labels)
//   a manifest  {"source-ref": "s3://...", "class": 3}      (Ground Truth's augmented manifests)
// Parsers free of files: listed_data.h looks for the pictures. A row that cannot be right is
// refused with its line, the value and what would be right.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::vision {

// One row, before it is known whether its picture is there.
struct ListedPicture {
  std::string path;  // of the picture, or its URI
  std::vector<double> labels;
  std::uint64_t place = 0;  // its line, or its byte in a RecordIO file
};

struct ClassName {
  std::string name;
  std::uint64_t line = 0;  // that says it first
};

struct Manifest {
  std::vector<ListedPicture> pictures;
  std::map<std::uint32_t, ClassName> class_names;  // where the metadata says them
};

constexpr std::size_t kMaxListBytes = std::size_t{1} << 30;  // of a whole list or manifest
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxListedPictures = 50'000'000;
// Classes are counted against each other, which takes 8 bytes for each pair.
constexpr std::size_t kMaxClasses = 32'768;

// An index stands for one row. The path is what follows the last tab, so it cannot hold one.
Result<std::vector<ListedPicture>> parse_lst(std::string_view text);

// Which attributes of a manifest's line are meant.
struct ManifestAttributes {
  std::string picture = "source-ref";
  std::string label = {};  // empty: the only one that is neither a reference nor metadata
};
Result<Manifest> parse_manifest(std::string_view text, const ManifestAttributes& attributes = {});

// A value of the user's within a message: cut when it is long.
std::string shown(std::string_view value);

}  // namespace atelier::vision
