#include "api/front_door.h"

#include <fmt/format.h>

#include <utility>

#include "api/access.h"
#include "api/credentials.h"
#include "api/operations.h"
#include "api/query.h"
#include "api/route.h"
#include "api/text.h"
#include "api/validate.h"
#include "base/byte_budget.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/log.h"

namespace atelier::api {
namespace {

// Of a request that is not S3's. The largest CreateTrainingJob that people write is a few hundred
// KiB; each connection may hold this much.
constexpr std::size_t kMaxBody = std::size_t{1} << 20;
// Of all those together: more would be given up to strangers who know an access key.
constexpr std::uint64_t kMaxBodies = std::uint64_t{128} << 20;
constexpr std::size_t kMaxDepth = 32;

std::string new_request_id() {
  std::string id = random_id();  // as a UUID, which is what clients expect to log
  for (const std::size_t dash : {8, 13, 18, 23}) id.insert(dash, 1, '-');
  return id;
}

// What only looks, by the name of its action.
bool is_read(std::string_view action) {
  const std::string_view name = action.substr(action.find(':') + 1);
  for (const char* start :
       {"Get", "List", "Describe", "Filter", "Search", "Simulate", "BatchGet"}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

void record(const Parts& parts, const AuditRecord& call) {
  if (parts.audit == nullptr) return;
  if (call.status < 400 && !parts.audit_reads && is_read(call.action)) return;
  parts.audit->write(call);
}

// Of the keys that a DeleteObjects was refused, as many as a line takes; nothing when there are
// none.
std::string refused_keys(std::string_view document) {
  constexpr std::string_view kStart = "<Error><Key>";
  constexpr std::size_t kMostWords = 1024;
  std::size_t count = 0;
  std::string words;
  for (std::size_t at = document.find(kStart); at != std::string_view::npos;
       at = document.find(kStart, at + 1)) {
    ++count;
    const std::string_view rest = document.substr(at + kStart.size());
    const std::string_view key = rest.substr(0, rest.find("</Key>"));
    if (words.size() + key.size() <= kMostWords) words.append(" ").append(key);
  }
  return count == 0 ? std::string{} : fmt::format("{} keys refused:{}", count, words);
}

// An exchange of S3, recorded when it is answered.
class RecordedExchange : public http::Exchange {
 public:
  RecordedExchange(const Parts& parts, const http::RequestHead& head, http::Principal principal,
                   std::unique_ptr<http::Exchange> inner)
      : parts_(parts),
        asked_{head.method, head.target, {}, {}, head.peer, head.tls},
        principal_(std::move(principal)),
        copy_source_(head.headers.find("x-amz-copy-source").value_or("")),
        inner_(std::move(inner)) {}

  [[nodiscard]] bool wants_body() const override { return inner_->wants_body(); }
  bool on_body(std::span<const std::byte> piece) override { return inner_->on_body(piece); }
  http::Response finish() override {
    http::Response response = inner_->finish();
    const bool reads = asked_.method == "GET" || asked_.method == "HEAD";
    if (reads && response.status < 400 && !parts_.audit_reads) return response;
    const objects::S3Service::Named named = parts_.s3.name(asked_);
    record(parts_, {.time = parts_.clock.now(),
                    .principal = principal_.arn,
                    .access_key = principal_.access_key,
                    .action = named.action,
                    .resource = named.resource,
                    .status = response.status,
                    .error = code_of(response),
                    .source = asked_.peer,
                    .request_id = response.headers.find("x-amz-request-id").value_or(""),
                    .tls = asked_.tls,
                    .detail = detail_of(response, named.action)});
    return response;
  }

 private:
  // Of an error document; a HEAD has none.
  static std::string_view element_of(const http::Response& response, std::string_view name) {
    const auto* text = std::get_if<std::string>(&response.body);
    if (response.status < 400 || text == nullptr) return {};
    const std::string begin = fmt::format("<{}>", name);
    const std::size_t start = text->find(begin);
    const std::size_t end = text->find(fmt::format("</{}>", name));
    if (start == std::string::npos || end == std::string::npos) return {};
    return std::string_view{*text}.substr(start + begin.size(), end - start - begin.size());
  }
  static std::string_view code_of(const http::Response& response) {
    return element_of(response, "Code");
  }
  [[nodiscard]] std::string detail_of(const http::Response& response,
                                      std::string_view action) const {
    std::string detail;
    if (!copy_source_.empty()) detail = "from " + copy_source_;
    const auto* text = std::get_if<std::string>(&response.body);
    if (asked_.method == "POST" && action == "s3:DeleteObject" && text != nullptr) {
      detail += refused_keys(*text);
    }
    // Which of the rights that it takes was missing.
    if (code_of(response) == "AccessDenied" && !principal_.arn.empty()) {
      if (!detail.empty()) detail += "; ";
      detail += element_of(response, "Message");
    }
    return detail;
  }

  const Parts& parts_;
  const http::RequestHead asked_;  // without headers and body
  const http::Principal principal_;
  const std::string copy_source_;
  std::unique_ptr<http::Exchange> inner_;
};

// One call of a service: JSON 1.1 or Query. The body is read first, because its digest is part of
// what was signed.
class ServiceExchange : public http::Exchange {
 public:
  ServiceExchange(const Parts& parts, Descriptions& described, ByteBudget& bodies,
                  http::RequestHead head, Route route)
      : parts_(parts),
        described_(described),
        kept_(bodies),
        head_(std::move(head)),
        route_(std::move(route)) {
    // What nobody's key can have signed is not kept.
    const Result<void> checked = http::check_before_body(head_, parts_.keys, parts_.clock.now());
    if (!checked) {
      early_ = refusal(checked.error());
    } else if (head_.content_length.value_or(0) > kMaxBody) {
      early_ = too_large();
    }
  }

  [[nodiscard]] bool wants_body() const override { return !early_; }

  bool on_body(std::span<const std::byte> piece) override {
    if (early_) return false;
    if (body_.size() + piece.size() > kMaxBody) {
      early_ = too_large();
    } else if (!kept_.grow(piece.size())) {
      early_ = ApiError{503, "ServiceUnavailable",
                        "Bodies of other requests take all of the memory that there is for them: "
                        "try again"};
    }
    if (early_) return false;
    body_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return true;
  }

  http::Response finish() override {
    request_id_ = new_request_id();
    const Outcome outcome = answer();
    http::Response response =
        route_.to == Route::To::kQuery ? query_response(outcome) : json_response(outcome);
    const auto* error = std::get_if<ApiError>(&outcome);
    record(parts_, {.time = parts_.clock.now(),
                    .principal = caller_arn_,
                    .access_key = access_key_,
                    .action = action_,
                    .resource = resource_,
                    .status = response.status,
                    .error = error == nullptr ? std::string_view{} : error->code,
                    .source = head_.peer,
                    .request_id = request_id_,
                    .tls = head_.tls,
                    .detail = error != nullptr && error->code.starts_with("AccessDenied")
                                  ? std::string_view{error->message}
                                  : std::string_view{}});
    return response;
  }

 private:
  Outcome answer() {
    if (early_) return *early_;
    const std::string digest = sha256_hex(body_);
    const Result<http::Verified> verified =
        http::verify(head_, parts_.keys, parts_.clock.now(), digest);
    if (!verified) return refusal(verified.error());
    caller_arn_ = verified->principal.arn;
    access_key_ = verified->principal.access_key;
    if (auto error = check_payload(*verified, digest)) return *error;
    if (route_.service == nullptr) return unknown_service();
    if (verified->service != route_.service->signing_name) {
      return ApiError{403, signature_code(),
                      fmt::format("Credential should be scoped to correct service: '{}'.",
                                  route_.service->signing_name)};
    }
    if (head_.headers.find("smithy-protocol")) {
      return ApiError{501, "NotImplemented",
                      fmt::format("{} is not served in the protocol that smithy-protocol names "
                                  "(CBOR): choose AWS JSON or Query in the client",
                                  route_.service->label)};
    }
    return route_.to == Route::To::kQuery ? query_call(*verified) : json_call(*verified);
  }

  static ApiError too_large() {
    return {413, "RequestEntityTooLargeException",
            fmt::format("The request body is larger than {} bytes", kMaxBody)};
  }

  // The code that each protocol's clients know for a wrong signature.
  [[nodiscard]] std::string signature_code() const {
    return route_.to == Route::To::kQuery ? "SignatureDoesNotMatch" : "InvalidSignatureException";
  }

  // http::verify speaks S3's codes; these are the other services'.
  [[nodiscard]] ApiError refusal(const Error& error) const {
    const bool query = route_.to == Route::To::kQuery;
    const std::size_t colon = error.message.find(": ");
    const std::string_view code = std::string_view(error.message).substr(0, colon);
    std::string message =
        colon == std::string::npos ? error.message : error.message.substr(colon + 2);
    if (!http::is_signed(head_)) {
      return {403, query ? "MissingAuthenticationToken" : "MissingAuthenticationTokenException",
              std::move(message)};
    }
    if (code == "InvalidAccessKeyId") {
      return {403, query ? "InvalidClientTokenId" : "UnrecognizedClientException",
              std::move(message)};
    }
    if (code == "ExpiredToken") {
      return {403, query ? "ExpiredToken" : "ExpiredTokenException", std::move(message)};
    }
    if (code == "AuthorizationHeaderMalformed") {
      return {400, query ? "IncompleteSignature" : "IncompleteSignatureException",
              std::move(message)};
    }
    return {403, signature_code(), std::move(message)};
  }

  // The body must be what was signed.
  [[nodiscard]] std::optional<ApiError> check_payload(const http::Verified& verified,
                                                      const std::string& digest) const {
    if (verified.payload == http::Payload::kSha256 && verified.payload_sha256 == digest) {
      return std::nullopt;
    }
    return ApiError{403, signature_code(),
                    "The body must be signed: x-amz-content-sha256 has to be its SHA-256"};
  }

  [[nodiscard]] ApiError unknown_service() const {
    return {501, "NotImplemented",
            fmt::format("This version of Atelier does not serve '{}'", route_.service_name)};
  }

  // The operation by name, or why there is none.
  [[nodiscard]] std::variant<const Operation*, ApiError> operation(std::string_view name) const {
    const Operation* found = find_operation(*route_.service, name);
    if (found == nullptr) {
      return ApiError{
          400, route_.to == Route::To::kQuery ? "InvalidAction" : "UnknownOperationException",
          fmt::format("{} has no operation '{}'", route_.service->label, name)};
    }
    if (!found->served) return not_served(route_.service->label, name);
    return found;
  }

  Outcome json_call(const http::Verified& caller) {
    if (route_.operation.empty()) {
      return ApiError{400, "UnknownOperationException",
                      fmt::format("X-Amz-Target names no operation of {}", route_.service->label)};
    }
    const auto found = operation(route_.operation);
    if (const auto* error = std::get_if<ApiError>(&found)) return *error;
    const std::string_view type = head_.headers.find("Content-Type").value_or("");
    if (!type.starts_with("application/x-amz-json-1.") && !type.starts_with("application/json")) {
      return ApiError{400, "SerializationException",
                      "Content-Type must be application/x-amz-json-1.1"};
    }
    const Result<json::value> input = parse_json(body_.empty() ? "{}" : body_, kMaxDepth, &memory_);
    if (!input) return ApiError{400, "SerializationException", input.error().message};
    return carry_out(*std::get<const Operation*>(found), *input, caller);
  }

  Outcome query_call(const http::Verified& caller) {
    const std::string_view form = head_.method == "GET" ? head_.query() : std::string_view(body_);
    const Result<QueryCall> call = parse_query_call(form);
    if (!call) return ApiError{400, "MalformedQueryString", call.error().message};
    const auto found = operation(is_name(call->action) ? call->action : "?");
    if (const auto* error = std::get_if<ApiError>(&found)) return *error;
    const Operation& called = *std::get<const Operation*>(found);
    const json::value input =
        called.input != nullptr ? shape_query_input(call->input, *called.input) : call->input;
    Outcome outcome = carry_out(called, input, caller);
    if (auto* error = std::get_if<ApiError>(&outcome)) error->code = query_code(*error);
    return outcome;
  }

  // What JSON calls "AccessDeniedException", Query calls "AccessDenied".
  static std::string query_code(const ApiError& error) {
    constexpr std::string_view kSuffix = "Exception";
    if (error.code == "ValidationException") return "ValidationError";
    if (!error.code.ends_with(kSuffix)) return error.code;
    return error.code.substr(0, error.code.size() - kSuffix.size());
  }

  static bool is_name(std::string_view text) {
    return text.size() <= 128 &&
           text.find_first_not_of(
               "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
               "abcdefghijklmnopqrstuvwxyz0123456789") == std::string_view::npos;
  }

  Outcome carry_out(const Operation& called, const json::value& input,
                    const http::Verified& caller) {
    json::value known(json::object_kind, &memory_);
    if (called.input != nullptr) {
      if (auto error = validate(input, *called.input)) return *error;
      known = project(input, *called.input, &memory_);
    }
    const Handler handler = find_handler(route_.service->signing_name, called.name);
    ATELIER_CHECK(handler != nullptr, "operations.txt serves what operations.cc does not have");
    const Call call{parts_,
                    described_,
                    caller.principal,
                    called,
                    known,
                    &memory_,
                    head_.headers.find("amz-sdk-invocation-id").value_or(""),
                    head_.tls};
    action_ = action_of(route_.service->signing_name, called.name);
    resource_ = resource_of(route_.service->signing_name, call);
    if (auto refused = refuse_access(route_.service->signing_name, call)) return *refused;
    called_ = &called;
    return handler(call);
  }

  // 5xx are ours to find again: the caller sees the id, the log has the cause.
  void log_failure(const ApiError& error) const {
    if (error.status < 500 || error.status == 501) return;
    log::error(fmt::format("request {} ({} {}): {}: {}", request_id_, route_.service_name,
                           route_.operation, error.code, error.message));
  }

  [[nodiscard]] http::Response json_response(const Outcome& outcome) const {
    http::Response response;
    const std::string_view version =
        route_.service != nullptr ? route_.service->protocols.json_version : "1.1";
    response.headers.add("Content-Type", fmt::format("application/x-amz-json-{}", version));
    response.headers.add("x-amzn-RequestId", request_id_);
    if (const auto* error = std::get_if<ApiError>(&outcome)) {
      log_failure(*error);
      response.status = error->status;
      response.headers.add("x-amzn-ErrorType", error->code);
      if (route_.service != nullptr && route_.service->protocols.query) {
        response.headers.add(
            "x-amzn-query-error",
            fmt::format("{};{}", query_code(*error), error->status < 500 ? "Sender" : "Receiver"));
      }
      response.body = to_valid_utf8(
          json::serialize(json::object{{"__type", error->code}, {"message", error->message}}));
    } else if (const auto* rendered = std::get_if<RenderedJson>(&outcome)) {
      response.body = *rendered->text;
    } else if (called_->output != nullptr) {
      response.body = to_valid_utf8(json::serialize(std::get<json::object>(outcome)));
    }
    return response;
  }

  [[nodiscard]] http::Response query_response(const Outcome& outcome) const {
    http::Response response;
    response.headers.add("Content-Type", "text/xml");
    response.headers.add("x-amzn-RequestId", request_id_);
    if (const auto* error = std::get_if<ApiError>(&outcome)) {
      log_failure(*error);
      response.status = error->status;
      response.body = to_valid_utf8(query_error(
          route_.service != nullptr ? route_.service->xml_namespace : "", *error, request_id_));
    } else {
      response.body = to_valid_utf8(
          query_reply(*route_.service, *called_, std::get<json::object>(outcome), request_id_));
    }
    return response;
  }

  // What is parsed and answered here; freed at once with the exchange.
  json::monotonic_resource memory_{8192};
  const Parts& parts_;
  Descriptions& described_;
  ByteBudget::Share kept_;
  http::RequestHead head_;
  Route route_;
  std::string body_;
  std::optional<ApiError> early_;  // known without the body, or the rest of it
  std::string request_id_;
  std::string caller_arn_, access_key_, action_, resource_;  // for the record, as far as known
  const Operation* called_ = nullptr;  // set when its handler gave the outcome
};

class FrontDoor : public http::Handler {
 public:
  explicit FrontDoor(const Parts& parts) : parts_(parts) {}

  std::unique_ptr<http::Exchange> begin(const http::RequestHead& head) override {
    if (is_credentials_request(head)) return http::answer(exchange_ticket(head));
    Route route = route_of(head);
    if (route.to == Route::To::kHealth) {
      return http::answer({200, {{"Content-Type", "text/plain"}}, "ok\n", {}});
    }
    if (route.to == Route::To::kS3) return begin_s3(head);
    return std::make_unique<ServiceExchange>(parts_, described_, bodies_, head, std::move(route));
  }

 private:
  http::Response exchange_ticket(const http::RequestHead& head) {
    GivenCredentials given = give_credentials(parts_, head);
    record(parts_, {.time = parts_.clock.now(),
                    .principal = given.principal,
                    .access_key = given.access_key,
                    .action = "atelier:ExchangeTicket",
                    .resource = "*",
                    .status = given.response.status,
                    .error = given.response.status < 400 ? "" : "AccessDenied",
                    .source = head.peer,
                    .tls = head.tls});
    return std::move(given.response);
  }

  std::unique_ptr<http::Exchange> begin_s3(const http::RequestHead& head) {
    if (head.method == "OPTIONS") return http::answer(parts_.s3.preflight(head));
    Result<http::Verified> verified = http::verify(head, parts_.keys, parts_.clock.now());
    if (verified && verified->service != "s3") {
      verified = Error{Code::kUnauthenticated,
                       "AuthorizationHeaderMalformed: the credential is scoped to '" +
                           verified->service + "', not to 's3'"};
    }
    if (!verified) {
      return recorded(head, {}, http::answer(parts_.s3.refuse(head, verified.error())));
    }
    return recorded(head, verified->principal, parts_.s3.begin(head, *verified));
  }

  std::unique_ptr<http::Exchange> recorded(const http::RequestHead& head, http::Principal principal,
                                           std::unique_ptr<http::Exchange> exchange) {
    if (parts_.audit == nullptr) return exchange;
    return std::make_unique<RecordedExchange>(parts_, head, std::move(principal),
                                              std::move(exchange));
  }

  const Parts parts_;
  Descriptions described_;
  ByteBudget bodies_{kMaxBodies};
};

}  // namespace

std::unique_ptr<http::Handler> make_front_door(const Parts& parts) {
  return std::make_unique<FrontDoor>(parts);
}

}  // namespace atelier::api
