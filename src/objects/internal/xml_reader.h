// The documents that clients send, read with pugixml; bounded, and refused in S3's words.
#pragma once

#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atelier::objects::internal {

// MalformedXML with the reason.
Error malformed(std::string_view why);

// The root of `xml`, which must be called `root`. Lives as long as `document`.
// At most `most_tags` begins of tags and the like: a parsed document takes a multiple of its bytes.
Result<pugi::xml_node> load_document(pugi::xml_document& document, std::string_view xml,
                                     std::string_view root, std::size_t most_tags = 20'000);

// Compares names without a namespace's prefix: clients declare S3's namespace, some with a prefix.
bool is_named(const pugi::xml_node& node, std::string_view name);
pugi::xml_node find_child(const pugi::xml_node& node, std::string_view name);
// Text and CDATA of the element itself.
std::string text_of(const pugi::xml_node& node);

}  // namespace atelier::objects::internal
