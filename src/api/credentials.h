// Where programs of jobs fetch their keys, as containers do on AWS (the "container credentials
// provider" of every SDK): GET with a ticket in Authorization, answered with a short-lived key.
#pragma once

#include "api/front_door.h"

namespace atelier::api {

inline constexpr const char* kCredentialsPath = "/_atelier/credentials";

// Whether a request is one of those: no bucket is named so, and no signature looks like a ticket.
bool is_credentials_request(const http::RequestHead& head);

// The key, or why not: 403 in the form that clients print. And whose, for the record.
struct GivenCredentials {
  http::Response response{};
  std::string principal{};  // ARN; empty when there is no key
  std::string access_key{};
};
GivenCredentials give_credentials(const Parts& parts, const http::RequestHead& head);

}  // namespace atelier::api
