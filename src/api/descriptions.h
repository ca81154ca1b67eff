// Replies of DescribeTrainingJob as they were rendered, so that clients which ask again and again
// for a job that stands still cost little. A reply is kept under the id and version of the record
// that it was made of, and found by those of the record as it is now: it cannot be an old one.
//
// Bounded in bytes; what was not asked for longest goes first. Safe from every thread.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "jobs/store.h"

namespace atelier::api {

class Descriptions {
 public:
  using Text = std::shared_ptr<const std::string>;

  explicit Descriptions(std::size_t max_bytes = std::size_t{16} << 20) : max_bytes_(max_bytes) {}

  // Null when that version was not kept, or not for so long.
  [[nodiscard]] Text find(const jobs::RecordVersion& version);
  void keep(const jobs::RecordVersion& version, Text text);
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct Entry {
    jobs::RecordVersion version;
    Text text;
  };
  static std::size_t cost(const Entry& entry);
  void drop(std::list<Entry>::iterator entry);

  const std::size_t max_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // asked for last comes first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> by_id_;
};

}  // namespace atelier::api
