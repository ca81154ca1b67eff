#include "api/credentials.h"

#include <fmt/format.h>

#include "base/json.h"

namespace atelier::api {
namespace {

// Clients fetch the next key a quarter of an hour before the end of the one they have.
constexpr std::chrono::hours kLife{1};

http::Response json_answer(int status, const json::object& object) {
  http::Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  response.headers.add("Cache-Control", "no-store");
  response.body = json::serialize(object);
  return response;
}

// Programs of jobs run on this machine: a ticket that came to somebody elsewhere is of no use
// there.
bool from_this_machine(std::string_view peer) {
  return peer.starts_with("127.") || peer.starts_with("[::1]") || peer.starts_with("::1");
}

}  // namespace

bool is_credentials_request(const http::RequestHead& head) {
  return head.method == "GET" && head.target == kCredentialsPath &&
         !head.headers.find("Authorization").value_or("").starts_with("AWS");
}

GivenCredentials give_credentials(const Parts& parts, const http::RequestHead& head) {
  const auto refuse = [](std::string_view why) {
    return GivenCredentials{json_answer(403, {{"code", "AccessDenied"}, {"message", why}})};
  };
  if (parts.sessions == nullptr) return refuse("this server gives no keys to jobs");
  if (!from_this_machine(head.peer)) return refuse("keys of jobs are for programs of this machine");
  const Result<http::KeyStore::Entry> key = parts.sessions->exchange(
      head.headers.find("Authorization").value_or(""), parts.clock.now(), kLife);
  if (!key) return refuse(key.error().message);
  const std::string_view job =
      std::string_view{key->principal.arn}.substr(key->principal.arn.rfind('/') + 1);
  if (parts.is_program_of && !parts.is_program_of(job, head.peer)) {
    return refuse("a job's authorization token is of use to that job's own programs alone");
  }
  return {json_answer(200, {{"RoleArn", key->principal.arn},
                            {"AccessKeyId", key->credentials.access_key},
                            {"SecretAccessKey", key->credentials.secret_key},
                            {"Token", key->credentials.session_token},
                            {"Expiration", format_iso8601(*key->expires)}}),
          key->principal.arn, key->credentials.access_key};
}

}  // namespace atelier::api
