#include "channels/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/json.h"

namespace atelier::channels {
namespace {

constexpr std::string_view kReferenceEnd = "-ref";

Error wrong(std::string message) { return Error{Code::kInvalidArgument, std::move(message)}; }

Result<void> check_size(std::string_view text) {
  if (text.size() <= kMaxManifestBytes) return {};
  return Error{Code::kResourceExhausted, fmt::format("a manifest has at most {} bytes, this has {}",
                                                     kMaxManifestBytes, text.size())};
}

Result<objects::Location> read_prefix(const json::value& first) {
  const std::optional<std::string> uri = find_string(first, "prefix");
  if (!uri) {
    return wrong(
        R"(entry 1 has to be {"prefix": "s3://bucket/prefix"}, for all names that follow)");
  }
  const Result<objects::Location> prefix = objects::parse_s3_uri(*uri);
  if (!prefix)
    return wrong(
        fmt::format("entry 1: the prefix '{}' is not of the form s3://bucket/prefix", *uri));
  return *prefix;
}

}  // namespace

Result<Manifest> parse_manifest(std::string_view text) {
  TRY(check_size(text));
  const json::value value = TRY(parse_json(text));
  const json::array* entries = value.if_array();
  if (entries == nullptr || entries->empty()) {
    return wrong(R"(a manifest is a JSON array: [{"prefix": "s3://bucket/prefix/"}, "name", ...])");
  }
  if (entries->size() > kMaxManifestEntries) {
    return Error{Code::kResourceExhausted,
                 fmt::format("a manifest has at most {} entries, this has {}", kMaxManifestEntries,
                             entries->size())};
  }
  Manifest manifest;
  manifest.prefix = TRY(read_prefix(entries->front()));
  std::unordered_set<std::string_view> seen;
  for (std::size_t i = 1; i < entries->size(); ++i) {
    const json::string* name = (*entries)[i].if_string();
    if (name == nullptr || name->empty()) {
      return wrong(fmt::format("entry {} has to be the name of an object, as a string", i + 1));
    }
    if (seen.insert(std::string_view{*name}).second) manifest.names.emplace_back(*name);
  }
  if (manifest.names.empty()) return wrong("it names no object after its prefix");
  return manifest;
}

namespace {

Result<AugmentedLine> read_line(std::string_view text, const std::vector<std::string>& attributes) {
  const Result<json::value> value = parse_json(text);
  if (!value) return value.error();
  if (!value->is_object()) return wrong("it has to be a JSON object");
  AugmentedLine line;
  line.text = std::string{text};
  for (const std::string& attribute : attributes) {
    const json::value* found = find_member(*value, attribute);
    if (found == nullptr) return wrong(fmt::format("it has no attribute '{}'", attribute));
    if (!attribute.ends_with(kReferenceEnd)) continue;
    if (!found->is_string())
      return wrong(fmt::format("'{}' has to be an S3 URI, as a string", attribute));
    const std::string uri{found->get_string()};
    const Result<objects::Location> location = objects::parse_s3_uri(uri);
    if (!location || location->key.empty()) {
      return wrong(fmt::format("'{}' is '{}', not of the form s3://bucket/key", attribute, uri));
    }
    line.references.push_back(*location);
  }
  return line;
}

}  // namespace

Result<std::vector<AugmentedLine>> parse_augmented_manifest(
    std::string_view text, const std::vector<std::string>& attributes) {
  TRY(check_size(text));
  std::vector<AugmentedLine> lines;
  std::size_t number = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = text.substr(start, end - start);
    start = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (lines.size() >= kMaxManifestEntries) {
      return Error{Code::kResourceExhausted,
                   fmt::format("a manifest has at most {} lines", kMaxManifestEntries)};
    }
    Result<AugmentedLine> read = read_line(line, attributes);
    if (!read) return read.error().within(fmt::format("line {}", number));
    lines.push_back(*std::move(read));
  }
  if (lines.empty()) return wrong("it has no lines");
  return lines;
}

}  // namespace atelier::channels
