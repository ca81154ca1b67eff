#include "cli/verbs.h"

#include <iostream>

#include "cli/terminal.h"

namespace atelier::cli {

ExitCode exit_code_for(const Error& error) {
  switch (error.code) {
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      return kUsage;
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return kUnreachable;
    case Code::kUnauthenticated:
    case Code::kPermissionDenied:
      return kDenied;
    case Code::kNotFound:
      return kNotThere;
    default:
      return kFailed;
  }
}

ExitCode report_error(const Error& error) {
  std::cerr << styled("atelier:", Style::kRed, colour_on_stderr()) << ' '
            << shown_on_stderr(error.message) << '\n';
  return exit_code_for(error);
}

}  // namespace atelier::cli
