// What a bucket's CORS and lifecycle documents say.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::objects::internal {

struct CorsRule {
  std::vector<std::string> origins{};  // with at most one '*' each
  std::vector<std::string> methods{};
  std::vector<std::string> headers{};  // that a request may have; likewise
  std::vector<std::string> exposed{};
  std::string max_age{};  // seconds; "" when not given
};
// At most 64 KiB, 100 rules, and 100 entries of a rule.
Result<std::vector<CorsRule>> parse_cors(std::string_view xml);
// The first rule for a request from `origin`; null when there is none. `headers`: those that a
// preflight asks for, by comma.
const CorsRule* match_cors(const std::vector<CorsRule>& rules, std::string_view origin,
                           std::string_view method, std::string_view headers);

// When an upload that nobody completes is given up.
struct AbandonRule {
  std::string prefix{};
  std::chrono::days after{};
};
// The enabled rules. Anything but AbortIncompleteMultipartUpload is refused by name: this server
// neither expires nor moves objects.
Result<std::vector<AbandonRule>> parse_lifecycle(std::string_view xml);

}  // namespace atelier::objects::internal
