#include "jobs/capacity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace atelier::jobs {
namespace {

// Shares are sums of decimal fractions: a rounding error must not keep a job out.
constexpr double kSlack = 1e-6;
constexpr std::size_t kMaxNames = 3;

}  // namespace

void Capacity::hold(const std::string& name, const Share& share) {
  remove(name);
  holders_.push_back({name, share});
}

void Capacity::enqueue(const std::string& name, const Share& share) {
  queue_.push_back({name, share});
}

const std::string* Capacity::next() const {
  return !queue_.empty() && fits(queue_.front().share) ? &queue_.front().name : nullptr;
}

bool Capacity::admits(const Share& share) const { return queue_.empty() && fits(share); }

bool Capacity::remove(const std::string& name) {
  const auto named = [&](const Entry& entry) { return entry.name == name; };
  return std::erase_if(holders_, named) + std::erase_if(queue_, named) > 0;
}

const std::string* Capacity::first_waiting() const {
  return queue_.empty() ? nullptr : &queue_.front().name;
}

std::optional<Share> Capacity::share_waiting(const std::string& name) const {
  const auto entry = std::ranges::find(queue_, name, &Entry::name);
  if (entry == queue_.end()) return std::nullopt;
  return entry->share;
}

Share Capacity::used() const {
  Share sum;
  for (const Entry& entry : holders_) {
    sum.vcpus += entry.share.vcpus;
    sum.memory_gib += entry.share.memory_gib;
    sum.gpus += entry.share.gpus;
  }
  return sum;
}

bool Capacity::fits(const Share& share) const {
  // On an idle host anything goes: a share from before the host shrank must not wait for ever.
  if (holders_.empty()) return true;
  const Share in_use = used();
  return in_use.vcpus + share.vcpus <= host_.vcpus + kSlack &&
         in_use.memory_gib + share.memory_gib <= host_.memory_gib + kSlack &&
         in_use.gpus + share.gpus <= host_.gpus;
}

std::string Capacity::why(const Share& share, std::size_t ahead) const {
  const Share in_use = used();
  std::vector<std::string> missing;
  const auto lacks = [&](double want, double held, double there, std::string_view what) {
    if (held + want <= there + kSlack) return;
    missing.push_back(
        fmt::format("{:.4g} {} (the host has {:.4g}, {:.4g} in use)", want, what, there, held));
  };
  lacks(share.vcpus, in_use.vcpus, host_.vcpus, "vCPUs");
  lacks(share.memory_gib, in_use.memory_gib, host_.memory_gib, "GiB of memory");
  lacks(share.gpus, in_use.gpus, host_.gpus, "GPUs");

  std::string text = "Waiting for compute capacity";
  if (!missing.empty()) text += fmt::format(": {}", fmt::join(missing, " and "));
  std::vector<std::string> names;
  for (const Entry& entry : holders_) {
    if (names.size() == kMaxNames) break;
    names.push_back(entry.name);
  }
  if (!names.empty()) text += fmt::format("; used by {}", fmt::join(names, ", "));
  if (holders_.size() > names.size()) {
    text += fmt::format(" and {} more", holders_.size() - names.size());
  }
  if (ahead > 0)
    text += fmt::format("; {} {} ahead in the queue", ahead, ahead == 1 ? "job" : "jobs");
  return text + ".";
}

}  // namespace atelier::jobs
