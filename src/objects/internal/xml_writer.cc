#include "objects/internal/xml_writer.h"

#include <fmt/format.h>

namespace atelier::objects::internal {

void XmlWriter::open_root(std::string_view name) {
  text_.append("<").append(name).append(" xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
}

void XmlWriter::element(std::string_view name, std::string_view text) {
  open(name);
  append_xml_escaped(text_, text);
  close(name);
}

void append_xml_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (byte < 0x20 && c != '\t' && c != '\n') {
      out += fmt::format("&#x{:X};", byte);
    } else {
      out.push_back(c);
    }
  }
}

}  // namespace atelier::objects::internal
