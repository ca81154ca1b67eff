#include "objects/internal/xml_reader.h"

#include <fmt/format.h>

#include "objects/internal/s3_error.h"

namespace atelier::objects::internal {
namespace {

// 1,000 keys of 1,024 bytes, all written as references, are the largest honest document.
constexpr std::size_t kMaxDocument = std::size_t{8} << 20;
// Honest documents declare a namespace or two.
constexpr std::size_t kMaxAttributes = 4096;

// Before anything is built: 8 MiB of "<a/>" or of attributes would become hundreds.
Result<void> check_counts(std::string_view xml, std::size_t most_tags) {
  std::size_t tags = 0;
  std::size_t attributes = 0;
  for (std::size_t at = xml.find_first_of("<="); at != std::string_view::npos;
       at = xml.find_first_of("<=", at + 1)) {
    if (xml[at] == '<') {
      if (++tags > most_tags) return malformed(fmt::format("it has more than {} tags", most_tags));
      continue;
    }
    const std::size_t next = xml.find_first_not_of(" \t\r\n", at + 1);
    if (next == std::string_view::npos || (xml[next] != '"' && xml[next] != '\'')) continue;
    if (++attributes > kMaxAttributes) {
      return malformed(fmt::format("it has more than {} attributes", kMaxAttributes));
    }
  }
  return {};
}

}  // namespace

Error malformed(std::string_view why) {
  return s3_error("MalformedXML", fmt::format("the document is not as it must be: {}", why));
}

bool is_named(const pugi::xml_node& node, std::string_view name) {
  const std::string_view full = node.name();
  const std::size_t colon = full.find(':');
  return (colon == std::string_view::npos ? full : full.substr(colon + 1)) == name;
}

pugi::xml_node find_child(const pugi::xml_node& node, std::string_view name) {
  for (const pugi::xml_node& child : node.children()) {
    if (is_named(child, name)) return child;
  }
  return {};
}

Result<pugi::xml_node> load_document(pugi::xml_document& document, std::string_view xml,
                                     std::string_view root, std::size_t most_tags) {
  if (xml.size() > kMaxDocument) {
    return s3_error(
        "MaxMessageLengthExceeded",
        fmt::format("the document has {} bytes; {} is the most", xml.size(), kMaxDocument));
  }
  TRY(check_counts(xml, most_tags));
  // Blanks count: a key can consist of them.
  const pugi::xml_parse_result result = document.load_buffer(
      xml.data(), xml.size(), pugi::parse_default | pugi::parse_ws_pcdata, pugi::encoding_utf8);
  if (!result) return malformed(fmt::format("{} at byte {}", result.description(), result.offset));
  const pugi::xml_node node = document.document_element();
  if (!is_named(node, root)) return malformed(fmt::format("its root is not {}", root));
  return node;
}

std::string text_of(const pugi::xml_node& node) {
  std::string text;
  for (const pugi::xml_node& child : node.children()) {
    if (child.type() == pugi::node_pcdata || child.type() == pugi::node_cdata)
      text += child.value();
  }
  return text;
}

}  // namespace atelier::objects::internal
