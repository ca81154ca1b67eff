#include "channels/channel_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <numeric>
#include <unordered_map>

namespace atelier::channels {
namespace {

constexpr std::size_t kMaxFiles = 50'000'000;
constexpr std::size_t kMaxNamed = 20;

// Why a relative name cannot be a path in the channel's folder; empty when it can.
std::string trouble_of(std::string_view name, std::size_t folder_bytes) {
  if (name.find('\0') != std::string_view::npos) return "its key has a zero byte";
  if (folder_bytes + 1 + name.size() >= PATH_MAX) {
    return fmt::format("a path has at most {} bytes", PATH_MAX - 1);
  }
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t end = std::min(name.find('/', start), name.size());
    const std::string_view part = name.substr(start, end - start);
    if (part.empty()) return "its key has an empty part ('//')";
    if (part == "." || part == "..") return "its key has a part '.' or '..'";
    if (part.size() > NAME_MAX) {
      return fmt::format("a name has at most {} bytes, '{}...' has {}", NAME_MAX,
                         part.substr(0, 40), part.size());
    }
    start = end + 1;
  }
  return {};
}

// ASCII letters only: what all file systems that fold case agree on.
std::string folded(std::string_view name, bool folds_case) {
  std::string text{name};
  if (!folds_case) return text;
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// SplitMix64 of Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

ChannelPlanner::ChannelPlanner(std::string bucket, std::size_t folder_bytes, bool folds_case)
    : folder_bytes_(folder_bytes), folds_case_(folds_case) {
  plan_.bucket = std::move(bucket);
}

void ChannelPlanner::refuse(std::string_view key, std::string_view why) {
  if (++refused_ > kMaxNamed) return;
  reasons_.push_back(
      fmt::format("'{}' ({})", objects::Location{plan_.bucket, std::string{key}}.uri(), why));
}

void ChannelPlanner::add_folders(std::string_view folder) {
  // The first one that is there already has its parents.
  while (!folder.empty() && plan_.folders.emplace(folder).second) {
    const std::size_t slash = folder.rfind('/');
    folder = slash == std::string_view::npos ? std::string_view{} : folder.substr(0, slash);
  }
}

Result<void> ChannelPlanner::add(objects::ObjectInfo object, std::string name) {
  const bool is_folder = name.empty() || name.back() == '/';
  if (is_folder && object.size > 0) {
    refuse(object.key, "its key ends with '/', but it has bytes");
    return {};
  }
  if (is_folder && !name.empty()) name.pop_back();
  if (is_folder && name.empty()) return {};
  const std::string trouble = trouble_of(name, folder_bytes_);
  if (!trouble.empty()) {
    refuse(object.key, trouble);
    return {};
  }
  if (is_folder) {
    add_folders(name);
    return {};
  }
  const std::size_t slash = name.rfind('/');
  if (slash != std::string::npos) add_folders(std::string_view{name}.substr(0, slash));
  plan_.bytes += object.size;
  plan_.files.push_back({std::move(object), std::move(name)});
  if (plan_.files.size() <= kMaxFiles) return {};
  return Error{Code::kResourceExhausted, fmt::format("it has more than {} objects", kMaxFiles)};
}

void ChannelPlanner::keep_newer() {
  std::ranges::sort(plan_.files, {}, &PlannedFile::name);
  const auto begin_of = [&](const std::string& name) {
    return std::ranges::lower_bound(plan_.files, name, {}, &PlannedFile::name);
  };
  std::unordered_set<std::string> left_out;
  for (const PlannedFile& file : plan_.files) {
    if (!plan_.folders.contains(file.name) || left_out.contains(file.name)) continue;
    const std::string below = file.name + "/";
    const auto begin = begin_of(below);
    auto end = begin;
    while (end != plan_.files.end() && end->name.starts_with(below)) ++end;
    const bool newer = std::all_of(begin, end, [&](const PlannedFile& inside) {
      return inside.object.last_modified < file.object.last_modified;
    });
    if (!newer) left_out.insert(file.name);
    if (!newer) continue;
    for (auto inside = begin; inside != end; ++inside) left_out.insert(inside->name);
    std::erase_if(plan_.folders, [&](const std::string& folder) {
      return folder == file.name || folder.starts_with(below);
    });
  }
  std::erase_if(plan_.files, [&](const PlannedFile& file) {
    if (!left_out.contains(file.name)) return false;
    plan_.bytes -= file.object.size;
    return true;
  });
}

void ChannelPlanner::find_collisions() {
  std::unordered_set<std::string> folded_folders;
  if (folds_case_) {
    for (const std::string& folder : plan_.folders) folded_folders.insert(folded(folder, true));
  }
  const auto& folders = folds_case_ ? folded_folders : plan_.folders;
  std::unordered_map<std::string, const PlannedFile*> names;
  names.reserve(plan_.files.size());
  for (const PlannedFile& file : plan_.files) {
    const std::string name = folded(file.name, folds_case_);
    if (folders.contains(name)) {
      refuse(file.object.key, "another key needs a folder of that name");
      continue;
    }
    const auto [other, is_new] = names.emplace(name, &file);
    if (!is_new) {
      refuse(file.object.key,
             fmt::format("the key '{}' lands on the same name", other->second->object.key));
    }
  }
}

Result<ChannelPlan> ChannelPlanner::finish() && {
  find_collisions();
  if (refused_ == 0) return std::move(plan_);
  return Error{Code::kInvalidArgument,
               fmt::format("{} {} cannot become files of the channel: {}{}", refused_,
                           refused_ == 1 ? "object" : "objects", fmt::join(reasons_, ", "),
                           refused_ > reasons_.size() ? ", ..." : "")};
}

std::string_view name_below_prefix(std::string_view key, std::string_view prefix) {
  if (!prefix.empty() && prefix.back() != '/' && key.size() > prefix.size() &&
      key[prefix.size()] == '/') {
    return key.substr(prefix.size() + 1);
  }
  const std::size_t slash = prefix.rfind('/');
  return slash == std::string_view::npos ? key : key.substr(slash + 1);
}

std::vector<std::size_t> shard_of(std::size_t size, Shard shard,
                                  std::optional<std::uint64_t> shuffle_seed) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (shuffle_seed) {
    // By a random key for each place: the same on every instance.
    std::ranges::sort(order, {}, [&](std::size_t i) {
      return std::pair{mixed(mixed(*shuffle_seed) ^ i), i};
    });
  }
  std::vector<std::size_t> mine;
  mine.reserve(size / shard.count + 1);
  for (std::size_t i = shard.index; i < size; i += shard.count) mine.push_back(order[i]);
  return mine;
}

}  // namespace atelier::channels
