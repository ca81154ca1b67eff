// Who holds how much of the host, and who waits for it: first in, first out, so that a small job
// that came later never holds up a large one that came before it. A value; not safe from threads.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "compute/instance_types.h"
#include "jobs/training_job.h"

namespace atelier::jobs {

struct Share {
  double vcpus = 0;
  double memory_gib = 0;
  int gpus = 0;
};
inline Share share_of(const TrainingJob& job) { return {job.vcpus, job.memory_gib, job.gpus}; }

class Capacity {
 public:
  explicit Capacity(const compute::HostCapacity& host) : host_(host) {}

  // Gives `name` its share whether or not the host has it: for jobs that run already.
  void hold(const std::string& name, const Share& share);
  // Puts `name` at the end of the line.
  void enqueue(const std::string& name, const Share& share);
  // The first of the line if its share is free now: hold() it, or remove() it, before asking again.
  [[nodiscard]] const std::string* next() const;
  // Whether a newcomer could start now: nobody waits, and its share is free.
  [[nodiscard]] bool admits(const Share& share) const;
  // Forgets `name`, wherever it is; false when it was nowhere.
  bool remove(const std::string& name);

  [[nodiscard]] const std::string* first_waiting() const;
  // Why the first of the line, or a newcomer with `share`, has to wait: what is missing, who uses
  // it.
  [[nodiscard]] std::string why(const Share& share, std::size_t ahead) const;
  [[nodiscard]] std::size_t waiting() const { return queue_.size(); }
  [[nodiscard]] std::optional<Share> share_waiting(const std::string& name) const;

 private:
  struct Entry {
    std::string name;
    Share share;
  };
  [[nodiscard]] bool fits(const Share& share) const;
  [[nodiscard]] Share used() const;

  compute::HostCapacity host_;
  std::vector<Entry> holders_;
  std::deque<Entry> queue_;
};

}  // namespace atelier::jobs
