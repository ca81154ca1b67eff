#include "vision/picture_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <unordered_set>

#include "base/json.h"

namespace atelier::vision {
namespace {

constexpr std::size_t kMaxShown = 100;
constexpr int kMaxDepth = 16;

Error at_line(std::uint64_t line, std::string_view what) {
  return Error{Code::kInvalidArgument, fmt::format("line {}: {}", line, what)};
}

// Calls line(number, text) for every line that is not blank, without its end.
template <typename Line>
Result<void> for_each_line(std::string_view text, Line line) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::uint64_t number = 0;
  std::size_t rows = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.ends_with('\r')) one.remove_suffix(1);
    if (one.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (one.size() > kMaxLineBytes) {
      return at_line(number,
                     fmt::format("it has {} bytes; the limit is {}", one.size(), kMaxLineBytes));
    }
    if (++rows > kMaxListedPictures) {
      return at_line(number, fmt::format("more than {} pictures", kMaxListedPictures));
    }
    TRY(line(number, one));
  }
  return {};
}

std::optional<double> parse_number(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || end != copy.data() + copy.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

Result<ListedPicture> parse_row(std::uint64_t number, std::string_view line) {
  const std::size_t first = line.find('\t');
  const std::size_t last = line.rfind('\t');
  if (first == last || first == std::string_view::npos) {
    return at_line(number, fmt::format("'{}' is not index, class and path with tabs between them",
                                       shown(line)));
  }
  ListedPicture row{.path = std::string(line.substr(last + 1)), .labels = {}, .place = number};
  std::string_view labels = line.substr(first + 1, last - first - 1);
  for (;;) {
    const std::size_t tab = std::min(labels.find('\t'), labels.size());
    const auto label = parse_number(labels.substr(0, tab));
    if (!label) {
      return at_line(number, fmt::format("class '{}' is no number{}", shown(labels.substr(0, tab)),
                                         row.labels.empty() ? "" : "; a path cannot hold a tab"));
    }
    row.labels.push_back(*label);
    if (tab == labels.size()) return row;
    labels.remove_prefix(tab + 1);
  }
}

// The labels of a manifest's value: 3, "3", [1,0,1] or "[1,0,1]".
std::optional<std::vector<double>> labels_in(const json::value& value) {
  if (value.is_string()) {
    const std::string text(value.as_string());
    if (!text.starts_with('[')) {
      const auto number = parse_number(text);
      return number ? std::optional(std::vector<double>{*number}) : std::nullopt;
    }
    const Result<json::value> parsed = parse_json(text);
    return parsed && parsed->is_array() ? labels_in(*parsed) : std::nullopt;
  }
  if (value.is_array()) {
    std::vector<double> labels;
    for (const json::value& one : value.as_array()) {
      if (!one.is_number()) return std::nullopt;
      labels.push_back(one.to_number<double>());
    }
    return labels;
  }
  if (!value.is_number()) return std::nullopt;
  return std::vector<double>{value.to_number<double>()};
}

// The attribute that holds the label: the only one that is neither a reference nor metadata.
Result<std::string> label_attribute_of(const json::object& row) {
  std::vector<std::string> candidates;
  for (const auto& [key, value] : row) {
    const std::string name(key);
    if (!name.ends_with("-ref") && !name.ends_with("-metadata")) candidates.push_back(name);
  }
  if (candidates.size() == 1) return candidates.front();
  std::string all;
  for (const std::string& name : candidates) all += " '" + shown(name) + "'";
  return Error{Code::kInvalidArgument,
               candidates.empty() ? "it has no label attribute"
                                  : "which attribute is the label? Name it with the hyperparameter "
                                    "'label_attribute':" +
                                        all};
}

Result<void> note_class_names(const json::object& row, const std::string& attribute,
                              const std::vector<double>& labels, std::uint64_t line,
                              Manifest& manifest) {
  const json::value* metadata = row.if_contains(attribute + "-metadata");
  if (metadata == nullptr) return {};
  const auto note = [&](std::uint32_t number, const std::string& name) -> Result<void> {
    const auto [entry, added] = manifest.class_names.emplace(number, ClassName{name, line});
    if (added || entry->second.name == name) return {};
    return Error{Code::kInvalidArgument,
                 fmt::format("class {} is called '{}' here and '{}' before", number, shown(name),
                             shown(entry->second.name))};
  };
  if (const auto name = find_string(*metadata, "class-name"); name && labels.size() == 1) {
    if (labels.front() >= 0 && labels.front() < kMaxClasses)
      TRY(note(static_cast<std::uint32_t>(labels.front()), *name));
  }
  const json::object* map = find_object(*metadata, "class-map");
  if (map == nullptr) return {};
  for (const auto& [key, value] : *map) {
    std::uint32_t number = 0;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (failed != std::errc{} || end != key.data() + key.size() || number >= kMaxClasses) {
      return Error{Code::kInvalidArgument,
                   fmt::format("'class-map' names class '{}'; it must be an integer from 0 to {}",
                               shown(key), kMaxClasses - 1)};
    }
    if (!value.is_string()) continue;
    TRY(note(number, std::string(value.as_string())));
  }
  return {};
}

}  // namespace

std::string shown(std::string_view value) {
  if (value.size() <= kMaxShown) return std::string(value);
  std::size_t end = kMaxShown;  // not within a character of UTF-8
  while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xc0) == 0x80) --end;
  return fmt::format("{}... ({} bytes)", value.substr(0, end), value.size());
}

Result<std::vector<ListedPicture>> parse_lst(std::string_view text) {
  std::vector<ListedPicture> rows;
  std::unordered_set<double> indices;
  TRY(for_each_line(text, [&](std::uint64_t number, std::string_view line) -> Result<void> {
    ListedPicture row = TRY(parse_row(number, line));
    const std::string_view index = line.substr(0, line.find('\t'));
    const auto value = parse_number(index);
    if (!value) return at_line(number, fmt::format("index '{}' is no number", shown(index)));
    if (!indices.insert(*value).second) {
      return at_line(number, fmt::format("index '{}' is there twice", shown(index)));
    }
    rows.push_back(std::move(row));
    return {};
  }));
  return rows;
}

Result<Manifest> parse_manifest(std::string_view text, const ManifestAttributes& attributes) {
  Manifest manifest;
  std::string attribute = attributes.label;
  TRY(for_each_line(text, [&](std::uint64_t number, std::string_view line) -> Result<void> {
    const Result<json::value> parsed = parse_json(line, kMaxDepth);
    if (!parsed) return at_line(number, parsed.error().message);
    if (!parsed->is_object()) return at_line(number, "it is no JSON object");
    const json::object& row = parsed->as_object();
    const auto reference = find_string(*parsed, attributes.picture);
    if (!reference) return at_line(number, fmt::format("it has no text '{}'", attributes.picture));
    if (attribute.empty()) {
      Result<std::string> found = label_attribute_of(row);
      if (!found) return at_line(number, found.error().message);
      attribute = *std::move(found);
    }
    const json::value* value = row.if_contains(attribute);
    if (value == nullptr) {
      return at_line(number, fmt::format("it has no label: no attribute '{}'", attribute));
    }
    auto labels = labels_in(*value);
    if (!labels) {
      return at_line(number, fmt::format("'{}' is {}; it must be a class number, or a list of "
                                         "numbers",
                                         attribute, shown(json::serialize(*value))));
    }
    const Result<void> noted = note_class_names(row, attribute, *labels, number, manifest);
    if (!noted) return at_line(number, noted.error().message);
    manifest.pictures.push_back({*reference, *std::move(labels), number});
    return {};
  }));
  return manifest;
}

}  // namespace atelier::vision
