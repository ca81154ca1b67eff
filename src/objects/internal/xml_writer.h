// XML documents as S3 writes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace atelier::objects::internal {

class XmlWriter {
 public:
  XmlWriter() : text_("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n") {}
  void open(std::string_view name) { tag("<", name); }
  // The outermost element, in S3's namespace.
  void open_root(std::string_view name);
  void close(std::string_view name) { tag("</", name); }
  void element(std::string_view name, std::string_view text);
  void element(std::string_view name, const char* text) { element(name, std::string_view{text}); }
  void element(std::string_view name, std::uint64_t number) {
    element(name, std::string_view{std::to_string(number)});
  }
  void element(std::string_view name, bool value) { element(name, value ? "true" : "false"); }
  // Text that is escaped already.
  void raw(std::string_view text) { text_.append(text); }
  [[nodiscard]] std::string finish() && { return std::move(text_); }

 private:
  void tag(std::string_view start, std::string_view name) {
    text_.append(start).append(name).push_back('>');
  }
  std::string text_;
};

// Markup and what XML 1.0 has no character for become references (&#x1;), as S3 writes them: a
// strict parser refuses those, so that clients ask for encoding-type=url.
void append_xml_escaped(std::string& out, std::string_view text);

}  // namespace atelier::objects::internal
