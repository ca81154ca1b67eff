// What a principal may do as a whole, made of policies: any of several grants, each of which
// reaches as far as all of its policies do together. A person has one grant of one policy; a job
// has its own paths cut to what its creator may do, and beside that what its role may do.
//
//   const Authority ann = Authority{{{policy}}};
//   ann.decide({"s3:GetObject", "arn:aws:s3:::pictures/1.jpg"});
//
// An explicit Deny of any policy in it wins. A value; made without grants it may do nothing.
#pragma once

#include <vector>

#include "access/policy.h"

namespace atelier::access {

class Authority {
 public:
  using Grant = std::vector<Policy>;  // an empty one allows nothing

  Authority() = default;
  explicit Authority(std::vector<Grant> grants) : grants_(std::move(grants)) {}
  static Authority everything() { return Authority{{{Policy::everything()}}}; }

  [[nodiscard]] Decision decide(const Request& request) const;
  // False when it is denied whatever the resource: for refusing before a body is read.
  [[nodiscard]] bool could_allow(std::string_view action) const;
  [[nodiscard]] const std::vector<Grant>& grants() const { return grants_; }

 private:
  std::vector<Grant> grants_;
};

}  // namespace atelier::access
