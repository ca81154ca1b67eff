// A policy says which actions a principal may take on which resources, in the language of AWS IAM:
// an explicit Deny wins, and what no statement allows is denied.
//
//   const Policy policy = TRY(Policy::parse(R"({"Version": "2012-10-17", "Statement": [
//     {"Effect": "Allow", "Action": "s3:Get*", "Resource": "arn:aws:s3:::pictures/*"}]})"));
//   policy.decide({"s3:GetObject", "arn:aws:s3:::pictures/1.jpg"}) == Decision::kAllowed
//
// Source of the semantics: "Policy evaluation logic" and "IAM JSON policy elements" of the IAM User
// Guide. Actions compare without case, resources byte for byte; `*` is any run of characters
// (slashes and colons too), `?` one. `${*}`, `${?}` and `${$}` stand for the characters themselves.
//
// Supported besides: NotAction, NotResource, Sid, Id, and Condition with StringEquals, StringLike,
// ArnEquals, ArnLike, their negations, StringEqualsIgnoreCase, Bool, Null and ...IfExists on the
// keys of condition_keys(). All else is refused by name.
//
// Pure values; safe from every thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace atelier::access {

// What is asked: views of what the caller keeps.
struct Request {
  std::string_view action;    // "s3:GetObject"
  std::string_view resource;  // "arn:aws:s3:::bucket/key", or "*" where there is none
  // Condition keys and values, such as {"s3:prefix", "train/"}. A key that is not here is absent.
  std::span<const std::pair<std::string_view, std::string_view>> context{};
};

enum class Decision {
  kAllowed,
  kExplicitDeny,  // a statement denies it
  kImplicitDeny,  // no statement allows it
};

class Policy {
 public:
  // Bounded: 64 KiB, 256 statements, 1,024 entries a list. kInvalidArgument names the place:
  // "Statement[2].Action: ...".
  static Result<Policy> parse(std::string_view text);
  // Allows everything.
  static const Policy& everything();
  // Allows and denies nothing: a grant that it is part of can only deny.
  static const Policy& nothing();

  // The same policy, but conditions on aws:PrincipalArn are about `principal_arn`, whoever asks: a
  // job that acts within its creator's policy is bound by what that says of the creator.
  [[nodiscard]] Policy as_of(std::string_view principal_arn) const;

  [[nodiscard]] Decision decide(const Request& request) const;
  // False when no statement allows the action on any resource: for refusing before a body is read.
  [[nodiscard]] bool could_allow(std::string_view action) const;
  // The text that it was parsed from, on one line.
  [[nodiscard]] const std::string& text() const;

 private:
  struct Rules;
  explicit Policy(std::shared_ptr<const Rules> rules) : rules_(std::move(rules)) {}
  friend class PolicyParser;
  std::shared_ptr<const Rules> rules_;
  std::shared_ptr<const std::string> principal_;  // of as_of()
};

// Of several policies of one principal: a Deny in any wins, an Allow in any is enough.
Decision decide(std::span<const Policy> policies, const Request& request);

// Makes `text` stand for itself inside a pattern of a policy.
std::string escape_pattern(std::string_view text);

// Why a request was refused, in the words of AWS: "User: arn:aws:iam::...:user/ann is not
// authorized to perform: s3:GetObject on resource: arn:aws:s3:::bucket/key because ...". Cut to
// bounds.
std::string refusal_words(std::string_view principal_arn, const Request& request,
                          Decision decision);

// The keys that conditions may ask about: those that this server knows of a request.
std::span<const std::string_view> condition_keys();

}  // namespace atelier::access
