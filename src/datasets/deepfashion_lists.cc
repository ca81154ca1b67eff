#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "datasets/internal/deepfashion_lists.h"

namespace atelier::datasets {
namespace {

constexpr std::size_t kMaxRows = 10'000'000;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Takes the last word off `row`.
std::string_view take_last(std::string_view& row) {
  row = trim(row);
  std::size_t begin = row.size();
  while (begin > 0 && !is_blank(row[begin - 1])) --begin;
  const std::string_view word = row.substr(begin);
  row = trim(row.substr(0, begin));
  return word;
}

Result<int> parse_int(std::string_view word) {
  int value = 0;
  const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (failed != std::errc() || end != word.data() + word.size() || word.empty()) {
    return Error{Code::kInvalidArgument, fmt::format("'{}' is no number", word.substr(0, 40))};
  }
  return value;
}

// Calls row(text) for each row; the error names the line. Checks the count.
template <typename Row>
Result<void> for_each_row(std::string_view text, Row row) {
  std::size_t line_number = 0;
  std::size_t rows = 0;
  std::size_t stated = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line_number == 1) {
      const Result<int> count = parse_int(line);
      if (!count || *count < 0 || static_cast<std::size_t>(*count) > kMaxRows) {
        return Error{Code::kInvalidArgument,
                     fmt::format("line 1 must be the number of rows, up to {}", kMaxRows)};
      }
      stated = static_cast<std::size_t>(*count);
    } else if (line_number > 2 && !line.empty()) {  // line 2 names the columns
      if (++rows > stated) break;
      const Result<void> done = row(line);
      if (!done) return done.error().within(fmt::format("line {}", line_number));
    }
  }
  if (rows != stated) {
    return Error{Code::kDataLoss,
                 fmt::format("line 1 says {} rows and there are {}{}", stated,
                             rows > stated ? "more than " : "", std::min(rows, stated))};
  }
  return {};
}

Result<std::string> parse_path(std::string_view text) {
  if (text.empty() || text.front() == '/' || text.find("..") != std::string_view::npos ||
      text.size() > 1024 ||
      std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; })) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' is no path of a picture", text.substr(0, 100))};
  }
  return std::string(text);
}

}  // namespace

Result<std::vector<Category>> parse_categories(std::string_view text) {
  std::vector<Category> categories;
  TRY(for_each_row(text, [&](std::string_view row) -> Result<void> {
    const int type = TRY(parse_int(take_last(row)));
    if (type < 1 || type > 3)
      return Error{Code::kInvalidArgument, fmt::format("type {} is not 1, 2 or 3", type)};
    const std::string name = TRY(parse_path(row));
    if (name.find('/') != std::string::npos || name.front() == '.') {
      return Error{Code::kInvalidArgument, fmt::format("'{}' is no name of a category", name)};
    }
    if (std::ranges::any_of(categories,
                            [&](const Category& other) { return other.name == name; })) {
      return Error{Code::kInvalidArgument, fmt::format("category '{}' is there twice", name)};
    }
    if (categories.size() >= 10'000)
      return Error{Code::kResourceExhausted, "more than 10000 categories"};
    categories.push_back({name, type});
    return {};
  }));
  return categories;
}

Result<std::vector<Listed<int>>> parse_category_images(std::string_view text,
                                                       std::size_t categories) {
  std::vector<Listed<int>> images;
  TRY(for_each_row(text, [&](std::string_view row) -> Result<void> {
    const int id = TRY(parse_int(take_last(row)));
    if (id < 1 || static_cast<std::size_t>(id) > categories) {
      return Error{Code::kOutOfRange,
                   fmt::format("category id {} is not within 1 and {}", id, categories)};
    }
    images.push_back({TRY(parse_path(row)), id});
    return {};
  }));
  return images;
}

Result<std::vector<Listed<std::string>>> parse_partition(std::string_view text) {
  std::vector<Listed<std::string>> images;
  TRY(for_each_row(text, [&](std::string_view row) -> Result<void> {
    const std::string_view part = take_last(row);
    if (part != "train" && part != "val" && part != "test") {
      return Error{Code::kInvalidArgument,
                   fmt::format("'{}' is not train, val or test", part.substr(0, 40))};
    }
    images.push_back({TRY(parse_path(row)), std::string(part)});
    return {};
  }));
  return images;
}

Result<std::vector<Listed<std::array<int, 4>>>> parse_boxes(std::string_view text) {
  std::vector<Listed<std::array<int, 4>>> images;
  TRY(for_each_row(text, [&](std::string_view row) -> Result<void> {
    std::array<int, 4> box{};
    for (std::size_t i = 4; i-- > 0;) box[i] = TRY(parse_int(take_last(row)));
    images.push_back({TRY(parse_path(row)), box});
    return {};
  }));
  return images;
}

}  // namespace atelier::datasets
