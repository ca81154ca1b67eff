#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "objects/internal/s3_call.h"
#include "objects/internal/xml_reader.h"

namespace atelier::objects::internal {
namespace {

// Begin and end of an Object, its Key, ETag, VersionId, Size and LastModifiedTime, and some more;
// of 10,000 parts likewise, each with its checksums.
constexpr std::size_t kMaxDeleteTags = 1000 * 12 + 100;
constexpr std::size_t kMaxPartTags = 10'000 * 20 + 100;

std::string unquoted(std::string text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    return text.substr(1, text.size() - 2);
  return text;
}

Result<CompletedPart> parse_part(const pugi::xml_node& node) {
  CompletedPart part;
  for (const pugi::xml_node& field : node.children()) {
    if (is_named(field, "PartNumber")) {
      const std::string text = text_of(field);
      const auto [at, failure] =
          std::from_chars(text.data(), text.data() + text.size(), part.number);
      if (failure != std::errc{} || at != text.data() + text.size() || part.number < 1 ||
          part.number > 10'000) {
        return malformed(fmt::format("the part number '{}' is not from 1 to 10000", text));
      }
    } else if (is_named(field, "ETag")) {
      part.etag = unquoted(text_of(field));
    } else if (std::string_view{field.name()}.starts_with("Checksum")) {
      const auto kind = find_checksum_kind(field.name() + std::strlen("Checksum"));
      if (!kind) return malformed(fmt::format("'{}' is no checksum", field.name()));
      part.checksum = Checksum{*kind, false, text_of(field)};
    }
  }
  if (part.number == 0 || part.etag.empty()) return malformed("a part needs PartNumber and ETag");
  return part;
}

}  // namespace

Result<DeleteRequest> parse_delete(std::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node root = TRY(load_document(document, xml, "Delete", kMaxDeleteTags));
  DeleteRequest request;
  for (const pugi::xml_node& child : root.children()) {
    if (is_named(child, "Quiet")) request.quiet = text_of(child) == "true";
    if (!is_named(child, "Object")) continue;
    Removal removal;
    for (const pugi::xml_node& field : child.children()) {
      if (is_named(field, "Key")) removal.key = text_of(field);
      if (is_named(field, "ETag")) removal.if_match = unquoted(text_of(field));
      if (is_named(field, "VersionId") && text_of(field) != "null") {
        return s3_error("NotImplemented", "DeleteObjects with a VersionId: versions are not kept");
      }
      if (is_named(field, "Size") || is_named(field, "LastModifiedTime")) {
        return s3_error("NotImplemented",
                        fmt::format("DeleteObjects with {} is for directory buckets; ETag is the "
                                    "condition that is supported",
                                    field.name()));
      }
    }
    if (removal.key.empty()) return malformed("an Object needs a Key");
    if (request.removals.size() == 1000) return malformed("1000 objects are the most");
    request.removals.push_back(std::move(removal));
  }
  if (request.removals.empty()) return malformed("it names no Object");
  return request;
}

Result<std::vector<CompletedPart>> parse_complete(std::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node root =
      TRY(load_document(document, xml, "CompleteMultipartUpload", kMaxPartTags));
  std::vector<CompletedPart> parts;
  for (const pugi::xml_node& child : root.children()) {
    if (!is_named(child, "Part")) continue;
    if (parts.size() == 10'000) return malformed("10000 parts are the most");
    parts.push_back(TRY(parse_part(child)));
  }
  if (parts.empty()) return malformed("it names no Part");
  return parts;
}

Result<std::string> parse_create_bucket(std::string_view xml) {
  if (xml.empty()) return std::string{};
  pugi::xml_document document;
  const pugi::xml_node root = TRY(load_document(document, xml, "CreateBucketConfiguration"));
  std::string location;
  for (const pugi::xml_node& child : root.children()) {
    if (is_named(child, "LocationConstraint")) location = text_of(child);
  }
  if (location.size() > 64 || !is_utf8(location))
    return malformed("the LocationConstraint is no region");
  return location;
}

Result<std::string> parse_tagging(std::string_view xml, std::size_t most) {
  pugi::xml_document document;
  const pugi::xml_node root = TRY(load_document(document, xml, "Tagging"));
  std::vector<std::pair<std::string, std::string>> tags;
  for (const pugi::xml_node& set : root.children()) {
    if (!is_named(set, "TagSet")) continue;
    for (const pugi::xml_node& tag : set.children()) {
      if (!is_named(tag, "Tag")) continue;
      auto& [name, value] = tags.emplace_back();
      for (const pugi::xml_node& field : tag.children()) {
        if (is_named(field, "Key")) name = text_of(field);
        if (is_named(field, "Value")) value = text_of(field);
      }
    }
  }
  TRY(check_tags(tags, most));
  std::string text;
  for (const auto& [name, value] : tags) {
    if (!text.empty()) text += "&";
    text += http::percent_encode(name) + "=" + http::percent_encode(value);
  }
  return text;
}

}  // namespace atelier::objects::internal
