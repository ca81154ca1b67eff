// Room on the disk that is kept for changes which end something: without it a disk that a job has
// filled could not be told that the job has ended, and what fills it would stay. Not safe from
// threads.
#pragma once

#include <filesystem>

#include "base/file.h"

namespace atelier::jobs::internal {

class Reserve {
 public:
  // On a disk that is full already it is empty until there is room.
  static Result<Reserve> open(const std::filesystem::path& path);
  // False when there is nothing to give.
  bool give_up();
  // After a change: what was given up is taken back as soon as there is room.
  void keep();

 private:
  explicit Reserve(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
  bool kept_ = false;
};

}  // namespace atelier::jobs::internal
