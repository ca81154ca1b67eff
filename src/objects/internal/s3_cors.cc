#include "objects/internal/s3_cors.h"

#include <fmt/format.h>

#include "base/id.h"
#include "objects/internal/bucket_rules.h"
#include "objects/internal/s3_error.h"

namespace atelier::objects::internal {
namespace {

struct Match {
  CorsRule rule{};
  std::string origin{};
};

Result<Match> find_rule(LocalStore& store, const std::string& bucket, std::string_view origin,
                        std::string_view method, std::string_view headers) {
  const std::string document = TRY(store.bucket_document(bucket, "cors"));
  if (document.empty()) {
    return s3_error("AccessForbidden", "CORSResponse: CORS is not enabled for this bucket");
  }
  const std::vector<CorsRule> rules = TRY(parse_cors(document));
  const CorsRule* rule = match_cors(rules, origin, method, headers);
  if (rule == nullptr) {
    return s3_error("AccessForbidden",
                    fmt::format("CORSResponse: no rule of the bucket allows {} from '{}' with the "
                                "headers asked for",
                                method, origin));
  }
  return Match{*rule, std::string{origin}};
}

// The header fields come from a document that a client wrote.
bool is_header_text(std::string_view text) {
  return text.find_first_of(std::string_view{"\r\n\0", 3}) == std::string_view::npos;
}

void add_rule(const Match& match, http::Headers& headers) {
  const bool anyone = match.rule.origins.front() == "*";
  headers.add("Access-Control-Allow-Origin", anyone ? "*" : match.origin);
  headers.add("Access-Control-Allow-Methods",
              fmt::format("{}", fmt::join(match.rule.methods, ", ")));
  const std::string exposed = fmt::format("{}", fmt::join(match.rule.exposed, ", "));
  if (!exposed.empty() && is_header_text(exposed)) {
    headers.add("Access-Control-Expose-Headers", exposed);
  }
  if (!match.rule.max_age.empty()) headers.add("Access-Control-Max-Age", match.rule.max_age);
  if (!anyone) headers.add("Access-Control-Allow-Credentials", "true");
  headers.add("Vary", "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
}

Result<http::Response> answer_preflight(LocalStore& store, const http::RequestHead& head) {
  const S3Request request = TRY(parse_request(head));
  const auto origin = request.header("origin");
  const auto method = request.header("access-control-request-method");
  if (!origin || !method) {
    return s3_error("BadRequest",
                    "an OPTIONS request needs Origin and Access-Control-Request-Method");
  }
  const std::string wanted = head.headers.joined("access-control-request-headers").value_or("");
  const Match match = TRY(find_rule(store, request.bucket, *origin, *method, wanted));
  http::Response response;
  response.body = std::string{};
  add_rule(match, response.headers);
  if (!wanted.empty()) response.headers.add("Access-Control-Allow-Headers", wanted);
  return response;
}

}  // namespace

http::Response preflight(LocalStore& store, const http::RequestHead& head) {
  Result<http::Response> response = answer_preflight(store, head);
  if (response) return *std::move(response);
  return error_response(to_s3_error(response.error()), head.method, head.path(), random_id(8));
}

void add_cors(LocalStore& store, const S3Request& request, http::Headers& headers) {
  const auto origin = request.header("origin");
  if (!origin || request.bucket.empty()) return;
  const Result<Match> match = find_rule(store, request.bucket, *origin, request.head.method, "");
  if (match) add_rule(*match, headers);
}

}  // namespace atelier::objects::internal
