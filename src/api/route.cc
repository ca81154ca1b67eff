#include "api/route.h"

#include <algorithm>

#include "http/sigv4.h"

namespace atelier::api {
namespace {

// What a client wrote, cut to what may stand in a message.
std::string printable(std::string_view text) {
  std::string out(text.substr(0, 128));
  std::ranges::replace_if(
      out,
      [](char c) {
        return (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' &&
               c != '-' && c != '.';
      },
      '?');
  return out;
}

// The fourth of "KEY/20261130/us-west-2/sts/aws4_request", cut off at what ends a credential.
std::string service_of_credential(std::string_view credential) {
  credential = credential.substr(0, credential.find_first_of(", &"));
  const std::size_t end = credential.rfind('/');
  if (end == std::string_view::npos || end == 0) return {};
  const std::size_t start = credential.rfind('/', end - 1);
  if (start == std::string_view::npos) return {};
  return std::string(credential.substr(start + 1, end - start - 1));
}

bool is_form(const http::RequestHead& head) {
  return head.headers.find("Content-Type")
      .value_or("")
      .starts_with("application/x-www-form-urlencoded");
}

Route to_service(std::string_view name) {
  const ServiceModel* service = find_service(name);
  const bool query = service != nullptr && service->protocols.query;
  return {query ? Route::To::kQuery : Route::To::kJson, service, printable(name), {}};
}

}  // namespace

std::string scope_service(const http::RequestHead& head) {
  constexpr std::string_view kCredential = "Credential=";
  if (const auto authorization = head.headers.find("Authorization")) {
    const std::size_t at = authorization->find(kCredential);
    return at == std::string_view::npos
               ? std::string()
               : service_of_credential(authorization->substr(at + kCredential.size()));
  }
  constexpr std::string_view kQuery = "X-Amz-Credential=";
  const std::string_view query = head.query();
  const std::size_t at = query.find(kQuery);
  if (at == std::string_view::npos) return {};
  std::string_view value = query.substr(at + kQuery.size());
  value = value.substr(0, value.find('&'));
  return service_of_credential(http::percent_decode(value).value_or(""));
}

Route route_of(const http::RequestHead& head) {
  if (const auto target = head.headers.find("X-Amz-Target")) {
    const std::size_t dot = target->rfind('.');
    const std::string_view prefix = target->substr(0, dot);
    return {Route::To::kJson, find_service_by_target(prefix), printable(prefix),
            dot == std::string_view::npos ? std::string() : printable(target->substr(dot + 1))};
  }
  const std::string service = scope_service(head);
  if (!service.empty()) return service == "s3" ? Route{} : to_service(service);
  if (!http::is_signed(head)) {
    if (head.method == "GET" && head.target == "/ping")
      return {Route::To::kHealth, nullptr, {}, {}};
    if (head.method == "POST" && head.path() == "/" && is_form(head)) {
      return {Route::To::kQuery, nullptr, {}, {}};
    }
  }
  return {};
}

}  // namespace atelier::api
