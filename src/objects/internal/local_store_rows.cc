#include <fmt/format.h>

#include <charconv>
#include <iterator>

#include "objects/internal/local_store_impl.h"

namespace atelier::objects {

std::string after_key(std::string_view key) {
  std::string next{key};
  next.push_back('\0');
  return next;
}

std::optional<std::string> after_prefix(std::string_view prefix) {
  std::string next{prefix};
  while (!next.empty() && next.back() == '\xFF') next.pop_back();
  if (next.empty()) return std::nullopt;
  next.back() = static_cast<char>(static_cast<unsigned char>(next.back()) + 1);
  return next;
}

namespace internal {

Error no_such_bucket(std::string_view name) {
  return Error{Code::kNotFound, fmt::format("NoSuchBucket: the bucket '{}' does not exist", name)};
}

Error no_such_key(std::string_view key) {
  return Error{Code::kNotFound, fmt::format("NoSuchKey: the key '{}' does not exist", key)};
}

Error no_such_upload(std::string_view id) {
  return Error{
      Code::kNotFound,
      fmt::format("NoSuchUpload: the upload '{}' does not exist; it may have been completed "
                  "or aborted",
                  id)};
}

Result<std::int64_t> bucket_id(Database& db, const std::string& name) {
  Rows find = TRY(db.query("SELECT id FROM buckets WHERE name = ?", {name}));
  if (!TRY(find.step())) return no_such_bucket(name);
  return find.integer(0);
}

// A header value can hold anything but a line feed, and no name holds a colon.
std::string pack_headers(const StoredHeaders& headers) {
  std::string text;
  for (const auto& [name, value] : headers) text += name + ":" + value + "\n";
  return text;
}

StoredHeaders unpack_headers(std::string_view text) {
  StoredHeaders headers;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::size_t colon = std::min(line.find(':'), line.size());
    headers.emplace_back(line.substr(0, colon), line.substr(std::min(colon + 1, line.size())));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return headers;
}

std::string pack_checksum(const std::optional<Checksum>& checksum) {
  if (!checksum) return {};
  return fmt::format("{}:{}:{}", checksum_name(checksum->kind), checksum->composite ? "C" : "F",
                     checksum->value);
}

std::optional<Checksum> unpack_checksum(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.size() < colon + 3) return std::nullopt;
  const std::optional<ChecksumKind> kind = find_checksum_kind(text.substr(0, colon));
  if (!kind) return std::nullopt;
  return Checksum{*kind, text[colon + 1] == 'C', std::string{text.substr(colon + 3)}};
}

// "number size checksum" a line. Format 1 had sizes alone, with commas between: of the parts from 1
// on.
std::string pack_parts(const std::vector<ObjectPart>& parts) {
  std::string text;
  for (const ObjectPart& part : parts) {
    fmt::format_to(std::back_inserter(text), "{} {} {}\n", part.number, part.size, part.checksum);
  }
  return text;
}

namespace {

template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [at, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(at - text.data()));
  if (!text.empty()) text.remove_prefix(1);
  return true;
}

std::vector<ObjectPart> unpack_sizes(std::string_view text) {
  std::vector<ObjectPart> parts;
  for (ObjectPart part{.number = 1}; take_number(text, part.size); ++part.number) {
    parts.push_back(part);
  }
  return parts;
}

}  // namespace

std::vector<ObjectPart> unpack_parts(std::string_view text) {
  if (text.find('\n') == std::string_view::npos) return unpack_sizes(text);
  std::vector<ObjectPart> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ObjectPart part;
    if (!take_number(line, part.number) || !take_number(line, part.size)) break;
    part.checksum = line;
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace internal
}  // namespace atelier::objects
