#include "objects/internal/s3_cors.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/id.h"
#include "objects/internal/s3_error.h"

namespace atelier::objects::internal {
namespace {

constexpr std::size_t kMaxParsed = 256;
constexpr std::ptrdiff_t kMaxAsked = 100;  // headers

struct Match {
  CorsRule rule{};
  std::string origin{};
};

Result<Match> find_rule(CorsRules& all, const std::string& bucket, std::string_view origin,
                        std::string_view method, std::string_view headers) {
  const CorsRules::Rules rules = TRY(all.find(bucket));
  const CorsRule* rule = match_cors(*rules, origin, method, headers);
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

Result<http::Response> answer_preflight(CorsRules& rules, const http::RequestHead& head) {
  const S3Request request = TRY(parse_request(head));
  const auto origin = request.header("origin");
  const auto method = request.header("access-control-request-method");
  if (!origin || !method) {
    return s3_error("BadRequest",
                    "an OPTIONS request needs Origin and Access-Control-Request-Method");
  }
  const std::string wanted = head.headers.joined("access-control-request-headers").value_or("");
  if (std::ranges::count(wanted, ',') >= kMaxAsked) {
    return s3_error("BadRequest",
                    fmt::format("Access-Control-Request-Headers names more than {}", kMaxAsked));
  }
  const Match match = TRY(find_rule(rules, request.bucket, *origin, *method, wanted));
  http::Response response;
  response.body = std::string{};
  add_rule(match, response.headers);
  if (!wanted.empty()) response.headers.add("Access-Control-Allow-Headers", wanted);
  return response;
}

}  // namespace

Result<CorsRules::Rules> CorsRules::find(const std::string& bucket) {
  std::string document = TRY(store_.bucket_document(bucket, "cors"));
  if (document.empty()) {
    return s3_error("AccessForbidden", "CORSResponse: CORS is not enabled for this bucket");
  }
  const std::lock_guard lock{mutex_};
  const auto found = parsed_.find(bucket);
  if (found != parsed_.end() && found->second.document == document) return found->second.rules;
  Rules rules = std::make_shared<const std::vector<CorsRule>>(TRY(parse_cors(document)));
  if (parsed_.size() >= kMaxParsed) parsed_.clear();
  parsed_.insert_or_assign(bucket, Parsed{std::move(document), rules});
  return rules;
}

http::Response preflight(CorsRules& rules, const http::RequestHead& head) {
  Result<http::Response> response = answer_preflight(rules, head);
  if (response) return *std::move(response);
  return error_response(to_s3_error(response.error()), head.method, head.path(), random_id(8));
}

void add_cors(CorsRules& rules, const S3Request& request, http::Headers& headers) {
  const auto origin = request.header("origin");
  if (!origin || request.bucket.empty()) return;
  const Result<Match> match = find_rule(rules, request.bucket, *origin, request.head.method, "");
  if (match) add_rule(*match, headers);
}

}  // namespace atelier::objects::internal
