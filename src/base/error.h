// What went wrong, as a value.
//
//   return Error{Code::kNotFound, fmt::format("bucket '{}' does not exist", name)};
//
// A code is mapped once, at the edge of the program, to an HTTP status, an errno, a SageMaker error
// type or an exit code. The message is written for the person who reads it: it names the thing, the
// value, and what would be right.
#pragma once

#include <string>
#include <string_view>

namespace atelier {

enum class Code {
  kInvalidArgument,   // the caller's input is wrong; the message names member, value and limit
  kUnauthenticated,   // no proof of who is calling, or a wrong one
  kPermissionDenied,  // known caller, not allowed
  kNotFound,
  kAlreadyExists,
  kFailedPrecondition,  // the thing is not in the state that this needs
  kAborted,             // lost a race with another writer
  kOutOfRange,          // a range or position outside of the data
  kResourceExhausted,   // disk, memory, quota or a bound on a request
  kCancelled,
  kDeadlineExceeded,
  kUnavailable,  // the other side is away; trying again may help
  kUnimplemented,
  kDataLoss,  // bytes are not what they should be
  kIo,        // the operating system refused
  kInternal,  // a bug of ours
};

// Whether the same call may succeed if it is made again.
enum class Retry { kNo, kYes };

struct Error {
  Code code = Code::kInternal;
  std::string message;
  Retry retry = Retry::kNo;

  // The same error, with what was being attempted in front of the message.
  [[nodiscard]] Error within(std::string_view what) const&;
};

// "NotFound", "InvalidArgument", ...
std::string_view code_name(Code code);

// An Error for `errno_value` (pass errno), such as "open '/x': No such file or directory".
Error error_from_errno(std::string_view what, int errno_value);

// Prints `message` with its place to stderr and aborts: for broken invariants, never for input.
[[noreturn]] void fail_check(const char* file, int line, std::string_view message);

}  // namespace atelier

// Stops the process if `condition` does not hold. For what only a bug can cause; bytes from outside
// are Errors, never checks.
#define ATELIER_CHECK(condition, message)                                   \
  do {                                                                      \
    if (!(condition)) ::atelier::fail_check(__FILE__, __LINE__, (message)); \
  } while (false)
