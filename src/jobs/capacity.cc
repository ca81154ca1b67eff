#include "jobs/capacity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace atelier::jobs {
namespace {

// Shares are sums of decimal fractions: a rounding error must not keep a job out.
constexpr double kSlack = 1e-6;
constexpr std::size_t kMaxNames = 3;

Share operator+(const Share& a, const Share& b) {
  return {a.vcpus + b.vcpus, a.memory_gib + b.memory_gib, a.gpus + b.gpus};
}
Share operator-(const Share& a, const Share& b) {
  return {a.vcpus - b.vcpus, a.memory_gib - b.memory_gib, a.gpus - b.gpus};
}
bool covers(const Share& room, const Share& wanted) {
  return wanted.vcpus <= room.vcpus + kSlack && wanted.memory_gib <= room.memory_gib + kSlack &&
         wanted.gpus <= room.gpus;
}

bool before(const Claim& a, const Claim& b) {
  return std::pair{a.spot, a.order} < std::pair{b.spot, b.order};
}

// The best choice by trying them all; 65,536 of them at most.
std::optional<std::vector<std::size_t>> best_victims(std::span<const Candidate> candidates,
                                                     const Share& missing) {
  std::optional<std::uint32_t> best;
  std::pair<int, std::chrono::milliseconds> best_cost;
  for (std::uint32_t chosen = 0; chosen < 1U << candidates.size(); ++chosen) {
    Share freed;
    std::pair<int, std::chrono::milliseconds> cost{0, 0};
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if ((chosen >> i & 1U) == 0) continue;
      freed = freed + candidates[i].share;
      ++cost.first;
      cost.second += candidates[i].work;
    }
    if (!covers(freed, missing) || (best && cost >= best_cost)) continue;
    best = chosen;
    best_cost = cost;
  }
  if (!best) return std::nullopt;
  std::vector<std::size_t> victims;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if ((*best >> i & 1U) != 0) victims.push_back(i);
  }
  return victims;
}

// How much of what is still missing a share gives, as a sum of the parts of each resource.
double part_of(const Share& share, const Share& missing) {
  const auto part = [](double given, double wanted) {
    return wanted > kSlack ? std::min(given, wanted) / wanted : 0;
  };
  return part(share.vcpus, missing.vcpus) + part(share.memory_gib, missing.memory_gib) +
         part(share.gpus, missing.gpus);
}

// Takes the job that gives the most of what is missing, the youngest of equals, until there is
// enough; then lets go those that are not needed, the one with the most work first.
std::optional<std::vector<std::size_t>> good_victims(std::span<const Candidate> candidates,
                                                     const Share& missing) {
  std::vector<std::size_t> left(candidates.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  std::vector<std::size_t> victims;
  Share freed;
  while (!covers(freed, missing)) {
    const auto best = std::ranges::max_element(left, {}, [&](std::size_t i) {
      return std::pair{part_of(candidates[i].share, missing - freed), -candidates[i].work};
    });
    if (best == left.end()) return std::nullopt;
    freed = freed + candidates[*best].share;
    victims.push_back(*best);
    left.erase(best);
  }
  std::ranges::sort(victims, std::ranges::greater{},
                    [&](std::size_t i) { return candidates[i].work; });
  std::erase_if(victims, [&](std::size_t i) {
    if (!covers(freed - candidates[i].share, missing)) return false;
    freed = freed - candidates[i].share;
    return true;
  });
  std::ranges::sort(victims);
  return victims;
}

}  // namespace

std::optional<std::vector<std::size_t>> choose_victims(std::span<const Candidate> candidates,
                                                       const Share& missing) {
  constexpr std::size_t kTryAll = 16;
  return candidates.size() <= kTryAll ? best_victims(candidates, missing)
                                      : good_victims(candidates, missing);
}

void Capacity::hold(const Claim& claim, Time since) {
  remove(claim.name);
  holders_.push_back({claim, since, false, false});
}

void Capacity::keep(const Claim& claim, Time since) {
  remove(claim.name);
  holders_.push_back({claim, since, false, true});
}

void Capacity::leaves(const std::string& name) {
  for (Holder& holder : holders_) holder.leaving = holder.leaving || holder.claim.name == name;
}

void Capacity::enqueue(const Claim& claim) {
  queue_.insert(std::ranges::upper_bound(queue_, claim, before), claim);
}

const Claim* Capacity::next() const {
  return !queue_.empty() && fits(queue_.front().share) ? &queue_.front() : nullptr;
}

bool Capacity::admits(const Claim& claim) const {
  return ahead_of(claim) == 0 && fits(claim.share);
}

bool Capacity::remove(const std::string& name) {
  return std::erase_if(holders_, [&](const Holder& each) { return each.claim.name == name; }) +
             std::erase_if(queue_, [&](const Claim& each) { return each.name == name; }) >
         0;
}

const Claim* Capacity::first_waiting() const { return queue_.empty() ? nullptr : &queue_.front(); }

// A newcomer has no order yet: it is the last of its kind.
std::size_t Capacity::ahead_of(const Claim& claim) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(queue_, [&](const Claim& each) { return each.spot <= claim.spot; }));
}

Share Capacity::used() const {
  Share sum;
  for (const Holder& holder : holders_) sum = sum + holder.claim.share;
  return sum;
}

std::optional<std::string> Capacity::pool_to_end() const {
  Share room = Share{host_.vcpus, host_.memory_gib, host_.gpus} - used();
  Share of_pools, of_spot;
  std::vector<const Holder*> pools;  // the youngest first
  for (const Holder& holder : holders_) {
    if (holder.leaving) room = room + holder.claim.share;
    if (!holder.leaving && holder.claim.spot) of_spot = of_spot + holder.claim.share;
    if (!holder.kept) continue;
    pools.push_back(&holder);
    of_pools = of_pools + holder.claim.share;
  }
  std::ranges::stable_sort(pools, std::ranges::greater{}, &Holder::since);
  for (const Claim& waiting : queue_) {
    if (pools.empty()) break;
    if (covers(room, waiting.share)) {
      room = room - waiting.share;
      continue;
    }
    // On a host of nothing but pools even a job that is larger than it starts once they are gone.
    if (pools.size() == holders_.size() && !covers(room + of_pools, waiting.share)) {
      return pools.back()->claim.name;
    }
    std::optional<std::string> oldest;
    if (covers(room + of_pools, waiting.share)) {
      Share left = room + of_pools;
      for (const Holder* pool : pools) {
        const bool spared = covers(left - pool->claim.share, waiting.share);
        if (spared) left = left - pool->claim.share;
        if (!spared) oldest = pool->claim.name;
      }
    } else if (!waiting.spot && covers(room + of_pools + of_spot, waiting.share)) {
      for (const Holder* pool : pools) {
        if (part_of(pool->claim.share, waiting.share - room) > 0) oldest = pool->claim.name;
      }
    }
    return oldest;
  }
  return std::nullopt;
}

std::vector<Capacity::Interruption> Capacity::to_interrupt(Time now) const {
  Share room = Share{host_.vcpus, host_.memory_gib, host_.gpus} - used();
  std::vector<const Holder*> spot;
  for (const Holder& holder : holders_) {
    if (holder.leaving) room = room + holder.claim.share;
    if (!holder.leaving && holder.claim.spot) spot.push_back(&holder);
  }
  std::vector<Interruption> going;
  for (const Claim& waiting : queue_) {
    if (waiting.spot) break;
    std::vector<Candidate> candidates;
    for (const Holder* holder : spot) {
      candidates.push_back({holder->claim.share, std::max(now, holder->since) - holder->since});
    }
    const auto victims = choose_victims(candidates, waiting.share - room);
    if (!victims) break;  // nobody behind it may have the room before it
    for (auto victim = victims->rbegin(); victim != victims->rend(); ++victim) {
      room = room + spot[*victim]->claim.share;
      going.push_back({spot[*victim]->claim.name, waiting.name});
      spot.erase(spot.begin() + static_cast<std::ptrdiff_t>(*victim));
    }
    room = room - waiting.share;
  }
  return going;
}

bool Capacity::fits(const Share& share) const {
  // On an idle host anything goes: a share from before the host shrank must not wait for ever.
  if (holders_.empty()) return true;
  return covers(Share{host_.vcpus, host_.memory_gib, host_.gpus} - used(), share);
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
  for (const Holder& holder : holders_) {
    if (names.size() == kMaxNames) break;
    names.push_back((holder.kept ? "the warm pool of " : "") + holder.claim.name);
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
