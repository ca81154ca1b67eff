// Who holds how much of the host, and who waits for it. On-demand jobs come before spot jobs, and
// within each of the two lines it is first in, first out by creation, so that a small job that came
// later never holds up a large one that came before it, and an interrupted job goes back to its old
// place. A job that waits takes the room of warm pools that nobody uses (pool_to_end()), and an
// on-demand job then that of spot jobs (to_interrupt()). A value; not safe from threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "compute/instance_types.h"
#include "jobs/training_job.h"

namespace atelier::jobs {

struct Share {
  double vcpus = 0;
  double memory_gib = 0;
  int gpus = 0;
};
inline Share share_of(const TrainingJob& job) { return {job.vcpus, job.memory_gib, job.gpus}; }

struct Claim {
  std::string name;
  Share share;
  bool spot = false;
  std::uint64_t order = 0;  // of creation: TrainingJob::id
};
inline Claim claim_of(const TrainingJob& job) {
  return {job.name, share_of(job), job.terms.spot, job.id};
}

// Which of the candidates are to go so that `missing` becomes free: as few as possible, and of
// those choices the one that loses the least work. Indices, ascending; nothing when all of them
// together are not enough. With more than 16 candidates the choice is a good one, not always the
// best.
struct Candidate {
  Share share;
  std::chrono::milliseconds work{0};  // that it would lose
};
std::optional<std::vector<std::size_t>> choose_victims(std::span<const Candidate> candidates,
                                                       const Share& missing);

class Capacity {
 public:
  explicit Capacity(const compute::HostCapacity& host) : host_(host) {}

  // Gives a job its share whether or not the host has it: for jobs that run already. `since` is
  // when the work began that an interruption would cost.
  void hold(const Claim& claim, Time since);
  // What a job that has ended leaves to one that may follow it: it is in use until it is removed.
  void keep(const Claim& claim, Time since);
  // A holder that has been told to go: its share is as good as free to those who plan.
  void leaves(const std::string& name);
  // Puts a job in its line.
  void enqueue(const Claim& claim);
  // The first of the lines if its share is free now: hold() it, or remove() it, before asking
  // again.
  [[nodiscard]] const Claim* next() const;
  // Whether a newcomer could start now: nobody waits before it, and its share is free.
  [[nodiscard]] bool admits(const Claim& claim) const;
  // Forgets `name`, wherever it is; false when it was nowhere.
  bool remove(const std::string& name);

  // The kept share that is to go now, so that jobs which wait can start in their order: the oldest
  // of those that the first of them cannot do without. Remove it, start who can start, and ask
  // again. Nothing when the wait is for others: then it would go for nothing.
  [[nodiscard]] std::optional<std::string> pool_to_end() const;

  struct Interruption {
    std::string victim;
    std::string wanted_by;
  };
  // Spot jobs that are to go now, so that on-demand jobs which wait can start in their order. None
  // when all of them together would not make the room: the wait is for others then.
  [[nodiscard]] std::vector<Interruption> to_interrupt(Time now) const;

  [[nodiscard]] const Claim* first_waiting() const;
  // Why the first of the line, or a newcomer, has to wait: what is missing, who uses it.
  [[nodiscard]] std::string why(const Share& share, std::size_t ahead) const;
  // How many of those that wait are before such a newcomer.
  [[nodiscard]] std::size_t ahead_of(const Claim& claim) const;

 private:
  struct Holder {
    Claim claim;
    Time since{};
    bool leaving = false;
    bool kept = false;  // for a job that may come
  };
  [[nodiscard]] bool fits(const Share& share) const;
  [[nodiscard]] Share used() const;

  compute::HostCapacity host_;
  std::vector<Holder> holders_;
  std::vector<Claim> queue_;  // in the order in which they start
};

}  // namespace atelier::jobs
