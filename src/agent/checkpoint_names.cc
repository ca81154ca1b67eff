#include "agent/checkpoint_names.h"

#include <algorithm>

#include "agent/journal.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kMaxKeyBytes = 1024;

constexpr std::string_view kEnds[] = {".tmp",        "_tmp",  "-tmp",  ".part", ".partial",
                                      ".incomplete", ".temp", "_temp", ".swp",  "~"};
constexpr std::string_view kStarts[] = {"tmp-", ".tmp", ".~"};
constexpr std::string_view kInside[] = {".tmp.", ".tmp-", "-tmp-", ".tempstate"};

// "tmp" and eight characters: tempfile._RandomNameSequence of CPython.
bool is_python_temporary(std::string_view name) {
  return name.size() == 11 && name.starts_with("tmp") &&
         std::ranges::all_of(name.substr(3), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

bool is_temporary_part(std::string_view name) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  const auto starts = [&](std::string_view start) { return name.starts_with(start); };
  const auto has = [&](std::string_view text) { return name.find(text) != name.npos; };
  return std::ranges::any_of(kEnds, ends) || std::ranges::any_of(kStarts, starts) ||
         std::ranges::any_of(kInside, has) || is_python_temporary(name);
}

}  // namespace

bool is_temporary_name(std::string_view path) {
  for (std::size_t start = 0; start < path.size();) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    if (is_temporary_part(path.substr(start, end - start))) return true;
    start = end + 1;
  }
  return false;
}

bool is_object_name(std::string_view path, std::size_t prefix_bytes) {
  return prefix_bytes + path.size() <= kMaxKeyBytes && valid_utf8(path) == path;
}

}  // namespace atelier::agent
