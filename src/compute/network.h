// A network of loopback alone that the instances of one job share: each of them is a process of its
// own that joins it. Needs no right that bubblewrap does not need. One that reaches outwards as
// well is made by compute/outward_network.h.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/file.h"
#include "base/result.h"

namespace atelier::compute {

class SharedNetwork {
 public:
  // Made by one of the job's agents; it is there as long as this value or a program inside it is.
  static Result<SharedNetwork> create();
  // By another process of the same user: `name` as name() gave it. kNotFound when its maker has
  // ended.
  static Result<SharedNetwork> join(const std::string& name);
  // That of the process.
  static Result<SharedNetwork> of(pid_t process);
  [[nodiscard]] std::string name() const;

  [[nodiscard]] int network_fd() const { return network_.get(); }
  // The user namespace that owns it; -1 where the caller is root.
  [[nodiscard]] int user_fd() const { return user_.get(); }

 private:
  UniqueFd network_, user_;
};

}  // namespace atelier::compute
