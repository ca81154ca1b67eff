#include "datasets/internal/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace atelier::datasets {
namespace {

constexpr int kFormat = 1;
constexpr std::size_t kMaxWarnings = 200;

json::object counts_to_json(const Summary& summary) {
  json::object counts;
  for (const auto& [split, numbers] : summary.counts) {
    json::object& classes = counts[split].emplace_object();
    for (std::size_t i = 0; i < numbers.size(); ++i) classes[summary.classes[i]] = numbers[i];
  }
  return counts;
}

// Nothing when it is not a manifest of ours.
std::optional<Summary> parse_summary(const json::value& value) {
  const json::array* classes = find_array(value, "classes");
  const json::object* counts = find_object(value, "counts");
  if (classes == nullptr || counts == nullptr || find_int(value, "format") != kFormat)
    return std::nullopt;
  Summary summary;
  summary.repeated = true;
  for (const json::value& name : *classes) {
    if (!name.is_string()) return std::nullopt;
    summary.classes.emplace_back(name.get_string());
  }
  for (const auto& [split, numbers] : *counts) {
    std::vector<std::uint64_t>& split_counts = summary.counts[std::string(split)];
    for (const std::string& name : summary.classes) {
      split_counts.push_back(static_cast<std::uint64_t>(find_int(numbers, name).value_or(0)));
    }
  }
  if (const json::array* warnings = find_array(value, "warnings")) {
    for (const json::value& text : *warnings) {
      if (text.is_string()) summary.warnings.emplace_back(text.get_string());
    }
  }
  summary.files = static_cast<std::uint64_t>(find_int(value, "files").value_or(0));
  summary.bytes = static_cast<std::uint64_t>(find_int(value, "bytes").value_or(0));
  return summary;
}

}  // namespace

Result<void> check_relative_path(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    return Error{Code::kInvalidArgument, fmt::format("path '{}': {}", path.substr(0, 200), why)};
  };
  if (path.empty() || path.size() > 1024) return refuse("must have 1 to 1024 bytes");
  if (std::ranges::any_of(
          path, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) {
    return refuse("has control characters");
  }
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = std::string_view(path).substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > 255)
      return refuse("has a part that is empty, '.', '..' or too long");
    begin = end + 1;
  }
  return {};
}

Result<std::optional<Summary>> Recorder::earlier() {
  const std::optional<std::string> text = TRY(sink_.manifest());
  if (!text) return std::optional<Summary>();
  const Result<json::value> manifest = parse_json(*text);
  if (!manifest || find_string(*manifest, "source") != source_) return std::optional<Summary>();
  return parse_summary(*manifest);
}

void Recorder::set_classes(std::vector<std::string> classes) {
  summary_.classes = std::move(classes);
}

Result<void> Recorder::put(const std::string& split, std::size_t label, const std::string& name,
                           std::string bytes) {
  std::string path = split.empty() ? "" : split + "/";
  path += summary_.classes[label] + "/" + name;
  TRY(check_relative_path(path));
  std::vector<std::uint64_t>& counts = summary_.counts[split];
  counts.resize(summary_.classes.size());
  ++counts[label];
  ++summary_.files;
  summary_.bytes += bytes.size();
  TRY(sink_.put(std::move(path), std::move(bytes)));
  if (progress_) progress_(++done_, total_);
  return {};
}

void Recorder::leave_out(std::string reason) {
  warn(std::move(reason));
  if (progress_) progress_(++done_, total_);
}

void Recorder::warn(std::string text) {
  if (summary_.warnings.size() < kMaxWarnings) {
    summary_.warnings.push_back(std::move(text));
  } else {
    ++suppressed_;
  }
}

Result<Summary> Recorder::finish() {
  if (summary_.files == 0) {
    return Error{
        Code::kFailedPrecondition,
        fmt::format("{}: no picture could be imported{}", dataset_,
                    summary_.warnings.empty() ? "" : "; the first: " + summary_.warnings.front())};
  }
  if (suppressed_ > 0) summary_.warnings.push_back(fmt::format("and {} more", suppressed_));
  json::object manifest = {
      {"format", kFormat},
      {"dataset", dataset_},
      {"source", source_},
      {"classes", json::array(summary_.classes.begin(), summary_.classes.end())},
      {"counts", counts_to_json(summary_)},
      {"files", summary_.files},
      {"bytes", summary_.bytes},
      {"warnings", json::array(summary_.warnings.begin(), summary_.warnings.end())}};
  for (const auto& [name, text] : extra_) manifest[name] = TRY(parse_json(text));
  TRY(sink_.finish(pretty_json(manifest) + "\n"));
  return summary_;
}

}  // namespace atelier::datasets
